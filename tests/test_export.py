"""`kgprof export`, and the traces that a report carries or has beside it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.model import PassName
from kgprof.reading import layout
from kgprof.record.ground.kept_records import write_records
from kgprof.render.embedded_profile import EMBEDDED_BYTES
from tests.export.test_speedscope import faults, whole_ns
from tests.record import handmade


def here(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = cli.run([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """An output folder; batched.eager has TRACE, fused.default TRACE and KERNELS, lost.default
    neither."""
    handmade.write(tmp_path / "out" / "recording")
    return tmp_path / "out"


def trace_of(recorded: Path, slug: str, name: str = "trace") -> Path:
    return recorded / "recording" / "runs" / slug / f"{name}.json.gz"


def make_larger(path: Path) -> None:
    """Beyond what a page carries: random bytes that gzip cannot shrink, where a reader looks for
    nothing."""
    filler = {"schemaVersion": os.urandom(EMBEDDED_BYTES).hex()}
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    path.write_bytes(gzip.compress(json.dumps({**filler, "traceEvents": events}).encode(), mtime=0))


# ---------------------------------------------------------------- graphs and code


def compiled(recorded: Path, slug: str, **texts: str) -> None:
    lines = [
        {"text": {"compile_id": "0/0", "what": what, "text": text}} for what, text in texts.items()
    ]
    write_records(recorded / "recording" / "runs" / slug / layout.TRACE_RECORDS, lines)


def test_graphs_and_code_come_whole_and_redacted(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "".join(f"buf{number} = empty()\n" for number in range(3000))
    graph = "# File: /home/somebody/shop/model.py:3 in forward, code: secret = self.linear(x)\n"
    compiled(recorded, "fused.default", graph=graph, code=code)
    files = {what: recorded.parent / f"{what}.py" for what in ("graph", "code")}

    for what, file in files.items():
        assert here(capsys, "export", recorded, "--to", what, "-o", file) == (0, f"{file}\n", "")

    assert files["code"].read_text() == f"# fused.default, compilation 0/0\n{code}"
    assert "somebody" not in files["graph"].read_text()
    assert "secret" not in files["graph"].read_text()  # a line of a file outside of the repository


def test_a_run_without_graphs_says_so(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(recorded, "fused.default", graph="a")
    compiled(recorded, "batched.eager", graph="b")
    file = recorded.parent / "graph.py"

    several = here(capsys, "export", recorded, "--to", "graph", "-o", file)
    none = here(capsys, "export", recorded, "--to", "code", "--run", "fused.default", "-o", file)
    hidden = here(
        capsys, "export", recorded, "--to", "graph", "--include-source", "none", "-o", file
    )

    assert [code for code, _, _ in (several, none, hidden)] == [2, 2, 2]
    assert "--run: batched.eager, fused.default" in several[2]
    assert "no code was recorded" in none[2]
    assert not file.exists()


# ---------------------------------------------------------------- the verb


def test_perfetto_gets_the_trace_as_it_is(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recorded.parent / "new" / "eager.trace.json.gz"

    said = here(
        capsys, "export", recorded, "--to", "perfetto", "--run", "batched.eager", "-o", file
    )

    assert said == (0, f"{file}\n", "")
    assert file.read_bytes() == trace_of(recorded, "batched.eager").read_bytes()


def test_speedscope_gets_the_nesting_of_the_kernels_pass_where_there_is_one(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recorded.parent / "fused.speedscope.json"

    # when: from the report, twice
    said = here(
        capsys,
        "export",
        recorded / "recording",
        "--to",
        "speedscope",
        "--run",
        "fused.default",
        "-o",
        file,
    )
    first = file.read_bytes()
    here(capsys, "export", recorded, "--to", "speedscope", "--run", "fused.default", "-o", file)

    # then: five steps of 500 us, half of each in addmm, three tenths in the generated kernel
    document = json.loads(first)
    assert said == (0, f"{file}\n", "")
    assert file.read_bytes() == first
    assert faults(document) == []
    assert document["name"] == "fused.default, KERNELS"
    assert whole_ns(document) == {
        **{f"ProfilerStep#{step}": 500_000 for step in range(5)},
        "aten::addmm": 5 * 250_000,
        "graph_0_cpp_fused_add_relu_0": 5 * 150_000,
    }


def test_the_pass_can_be_chosen(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = recorded.parent / "fused.speedscope.json"

    args = ("--to", "speedscope", "--run", "fused.default", "--pass", "trace", "-o", file)
    code, _, _ = here(capsys, "export", recorded, *args)

    document = json.loads(file.read_bytes())
    assert (code, document["name"]) == (0, "fused.default, TRACE")
    assert "aten::relu" in whole_ns(document)


def test_the_stacks_can_be_had_for_either_viewer(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recorded.parent / "stacks.json"
    asked = ("export", recorded, "--run", "fused.default", "--pass", "stack", "-o", file)

    assert here(capsys, *asked, "--to", "perfetto")[0] == 0
    perfetto = file.read_bytes()
    assert here(capsys, *asked, "--to", "speedscope")[0] == 0
    written = json.loads(file.read_bytes())

    assert perfetto == trace_of(recorded, "fused.default", "stack_trace").read_bytes()
    assert faults(written) == []
    assert written["name"] == "fused.default, STACK"
    assert {"name": "forward", "file": "/src/invented.py", "line": 10} in written["shared"][
        "frames"
    ]
    assert here(capsys, *asked[:2], "--run", "lost.default", *asked[4:], "--to", "perfetto")[0] == 2


def test_the_only_run_with_such_a_trace_needs_no_name(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recorded.parent / "x.json.gz"

    code, _, _ = here(
        capsys, "export", recorded, "--to", "perfetto", "--pass", "kernels", "-o", file
    )

    assert code == 0
    assert file.read_bytes() == trace_of(recorded, "fused.default", "kernels").read_bytes()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), ["2 runs have a trace", "--run: batched.eager, fused.default"]),
        (
            ("--run", "fused.defalt"),
            ["no run 'fused.defalt'", "batched.eager, fused.default, lost.default"],
        ),
        (
            ("--run", "lost.default"),
            [
                "lost.default: there is no TRACE pass: the run was killed",
                "a trace of batched.eager, fused.default",
            ],
        ),
        (
            ("--run", "batched.eager", "--pass", "kernels"),
            ["batched.eager: there is no KERNELS pass: eager mode has no kernels of Inductor"],
        ),
        (
            ("--run", "fused.default", "--pass", "host"),
            ["'host' is not one of 'trace', 'stack', 'kernels'"],
        ),
    ],
)
def test_what_cannot_be_exported_is_one_error(
    recorded: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], expected: list[str]
) -> None:
    file = recorded.parent / "x"

    code, out, err = here(capsys, "export", recorded, "--to", "speedscope", "-o", file, *args)

    assert (code, out, err.count("error:")) == (2, "", 1)
    for part in expected:
        assert part in err
    assert not file.exists()


def test_a_trace_that_is_gone_or_no_trace_is_one_error(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recorded.parent / "x"
    export = ("export", recorded, "--to", "speedscope", "--run", "batched.eager", "-o", file)
    trace_of(recorded, "batched.eager").write_bytes(b"no trace")

    no_trace = here(capsys, *export)
    trace_of(recorded, "batched.eager").unlink()
    gone = here(capsys, *export)

    assert no_trace == (
        2,
        "",
        "kgprof: error: trace.json.gz: not a Kineto trace: it has no traceEvents\n",
    )
    assert gone[0] == 2
    assert "the trace of TRACE was moved or deleted" in gone[2]
    assert not file.exists()


def test_a_trace_that_breaks_off_is_exported_as_far_as_it_goes(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = trace_of(recorded, "batched.eager"), recorded.parent / "x.json"
    whole = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(whole[: len(whole) // 2]))

    args = ("export", recorded, "--to", "speedscope", "--run", "batched.eager", "-o", file)
    code, _, err = here(capsys, *args)

    assert code == 0
    assert err.startswith("kgprof: trace.json.gz: the trace was not read to its end")
    assert faults(json.loads(file.read_bytes())) == []


def test_a_file_that_cannot_be_written_is_one_error(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for viewer in ("perfetto", "speedscope"):
        args = ("export", recorded, "--to", viewer, "--run", "batched.eager", "-o", "/proc/x")
        code, _, err = here(capsys, *args)

        assert (code, err.count("error: ")) == (2, 1)
        assert "cannot write /proc/x" in err


# ---------------------------------------------------------------- the report's traces


def links(page: str) -> dict[str, str]:
    """Addresses of the downloads by the names that a browser saves them as."""
    return {
        name: address for address, name in re.findall(r'<a href="([^"]*)" download="([^"]*)"', page)
    }


def test_a_page_carries_small_traces_and_links_to_large_ones_in_its_recording(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_larger(trace_of(recorded, "batched.eager"))

    assert here(capsys, "report", recorded)[0] == 0

    page = (recorded / "report.html").read_text(encoding="utf-8")
    found = links(page)
    assert set(found) == {"batched.eager.trace.json.gz", "fused.default.kernels.json.gz"}
    assert found["batched.eager.trace.json.gz"] == "recording/runs/batched.eager/trace.json.gz"
    start, _, data = found["fused.default.kernels.json.gz"].partition(",")
    assert start == "data:application/gzip;base64"
    assert base64.b64decode(data) == trace_of(recorded, "fused.default", "kernels").read_bytes()
    assert page.count('class="perfetto"') == 1
    assert sorted(path.name for path in recorded.iterdir()) == [
        "recording",
        "report.html",
        "report.json",
    ]


def test_a_page_elsewhere_gets_its_large_traces_beside_it(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_larger(trace_of(recorded, "batched.eager"))
    elsewhere, page = recorded.parent / "elsewhere", recorded.parent / "pages" / "page.html"

    here(capsys, "report", recorded, "-o", elsewhere)
    here(capsys, "report", recorded, "--format", f"html={page}")

    for file in (elsewhere / "report.html", page):
        found = links(file.read_text(encoding="utf-8"))
        assert found["batched.eager.trace.json.gz"] == "batched.eager.trace.json.gz"
        beside = file.parent / "batched.eager.trace.json.gz"
        assert beside.read_bytes() == trace_of(recorded, "batched.eager").read_bytes()
    assert not (elsewhere / "fused.default.kernels.json.gz").exists()


def test_a_page_on_stdout_says_what_it_does_not_carry(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_larger(trace_of(recorded, "batched.eager"))

    code, page, _ = here(capsys, "report", recorded, "--format", "html")

    assert code == 0
    assert set(links(page)) == {"fused.default.kernels.json.gz"}
    assert "in the recording, too large for this page" in page


def test_a_run_whose_name_no_address_can_hold_is_linked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given: a run that is called like a path with a query
    recording = handmade.write(tmp_path / "out" / "recording")
    key = handmade.BATCHED
    folder = layout.run_folder(Path(recording.folder), key)
    header = (tmp_path / "out/recording/recording.json").read_text(encoding="utf-8")
    odd = "a/b?c=1 #d%"
    (tmp_path / "out/recording/recording.json").write_text(
        header.replace('"batched"', json.dumps(odd)), "utf-8"
    )
    renamed = layout.run_folder(Path(recording.folder), type(key)(strategy=odd, mode="eager"))
    folder.rename(renamed)
    make_larger(renamed / layout.TRACE_FILES[PassName.TRACE])

    here(capsys, "report", tmp_path / "out")

    found = links((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert (
        "recording/runs/a%252Fb%253Fc=1%20%2523d%2525.eager/trace.json.gz".replace("=", "%3D")
        in found.values()
    )
