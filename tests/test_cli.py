"""The command line as its user meets it: what it prints where, and with which exit code it ends.

Whole recordings run in child processes and import torch there, so they are few and each looks at
much.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import jsonschema
import pytest

from kgprof import cli
from kgprof.cli import entry, options, reading, verbs
from kgprof.collectors import RULES
from kgprof.errors import OutputError
from kgprof.model import CompilePass, PassName, RunKey, Skipped, TracePass
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from tests import commands
from tests.record import handmade

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "fixtures" / "workloads"
SHAPES = WORKLOADS / "shapes.py"
MISBEHAVING = WORKLOADS / "misbehaving.py"

# The parent must never import torch: here it cannot. Its children are processes of their own.
WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("the parent imported torch")
sys.meta_path.insert(0, NoTorch())
from kgprof.cli import main
main()
"""


def kgprof(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args),
        cwd=cwd,
        env=surroundings(environment),
        capture_output=True,
        text=True,
        check=False,
    )


def forked(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Of a process that has imported torch: a second and not five."""
    return commands.run(*args, cwd=cwd, environment=surroundings(environment))


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-c", WITHOUT_TORCH, *map(str, args)]


def surroundings(environment: dict[str, str]) -> dict[str, str]:
    """Of this process, without what a developer or a CI machine may have set."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("KGPROF_") and key != "CI"
    }
    return {**kept, "PYTHONPATH": str(ROOT), **environment}


def error_and_hint(stderr: str) -> list[str]:
    """The lines after the progress, of which each run's step time, or how it ended, is a part."""
    of_a_run = re.compile(r"kgprof: ([\w.-]+\.[\w-]+: |other processes used )")
    return [
        line
        for line in stderr.splitlines()
        if not (line.startswith("kgprof:  ") or of_a_run.match(line))
    ]


def here(args: Sequence[str | Path], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that starts no child, in this process."""
    code = cli.run([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err


# ---------------------------------------------------------------- without a child


def test_help_is_instant_and_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom kgprof.cli import run\ncode = run(['--help'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'jinja2', 'kgprof.analysis', 'kgprof.record'}\n"
        "first = sorted((heavy | {'kgprof.render'}) & set(sys.modules))\n"
        "code += run(['profile', '--help'])\n"  # which names the formats of the renderers
        "print(code, first, sorted(heavy & set(sys.modules)))"
    )
    checked = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=surroundings({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert checked.stdout.splitlines()[-1] == "0 [] []"

    # CPU seconds, the best of five: the wall clock of a busy machine says nothing.
    assert min(_cpu_seconds([sys.executable, "-m", "kgprof", "--help"]) for _ in range(5)) < 0.25


def _cpu_seconds(args: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(args, env=surroundings({}), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    "verb", ["profile", "check-graphs", "report", "trace", "export", "schema", "explain"]
)
def test_every_verb_explains_itself_with_an_example(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = here([verb, "--help"], capsys)

    assert (code, err) == (0, "")
    assert f"For example:  kgprof {verb}" in out


def test_without_a_verb_the_help_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = here([], capsys)

    assert (code, out) == (2, "")
    assert "Start here:  kgprof profile" in err


@pytest.mark.parametrize(
    ("args", "is_said"), [([], True), (["-m", "json.tool"], False), (["linkpred"], False)]
)
def test_where_no_workload_is_named_the_example_is(
    args: list[str], is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with verbs.profile.make_context("profile", args) as ctx:
        options.tell_of_the_default(ctx.params["workload"])

    assert ("this is kgprof's own example, linkpred" in capsys.readouterr().err) == is_said


def test_the_version_names_torch_without_importing_it(tmp_path: Path) -> None:
    done = kgprof("--version", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kgprof 0.1.0 (torch 2.")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["profil"], ["error: no command 'profil'; did you mean 'profile'?", "see kgprof --help"]),
        (["nowhere.py:step"], ["nowhere.py: file not found", "path/file.py:name"]),
        (["nowhere.py", "--steps", "3"], ["nowhere.py: file not found", "file.py:name"]),
        (["profile", "linkpre"], ["did you mean 'linkpred'?", "pkg.mod:name"]),
        (["profile", "nowhere.py:step"], ["nowhere.py: file not found", "path/file.py:name"]),
        (["profile", "script.py"], ["script.py: file not found", "file.py:name"]),
        (["profile", "--stps", "3"], ["'--stps'", "--steps", "own options go after --"]),
        (
            ["profile", "linkpred", "--queries", "3"],
            ["'--queries'", "the workload's own options go after --"],
        ),
        (
            ["profile", "linkpred", "extra"],
            ["unexpected extra argument (extra)", "see kgprof profile --help"],
        ),
        (
            ["profile", "--steps", "0"],
            ["'--steps': 0 is not in the range x>=1", "see kgprof profile --help"],
        ),
        (
            ["profile", "--steps", "3", "--warmup", "3"],
            ["--warmup 3 leaves no steady step of --steps 3", "more --steps"],
        ),
        (["profile", "--timeout", "0"], ["'--timeout': 0.0 is not in the range 0<x<=604800"]),
        (
            ["profile", "--timeout", "inf"],
            ["'--timeout': inf is not in the range 0<x<=604800", "--help"],
        ),
        (["profile", "--timeout", "nan"], ["'--timeout': nan is not in the range 0<x<=604800"]),
        (
            ["check-graphs", "--timeout", "1e10"],
            ["'--timeout': 10000000000.0 is not in the range 0<x<=604800"],
        ),
        (["profile", "--duration", "nan"], ["'--duration': nan is not in the range x>0"]),
        (["sweep", "--minutes", "nan"], ["'--minutes': nan is not in the range 0<x<=10080"]),
        (["profile", ""], ["no workload ''", "pkg.mod:name"]),
        (
            ["export", "out"],
            ["missing option '--to'. Choose from: speedscope, perfetto, graph, code\n  hint: see"],
        ),
        (
            ["profile", "--mode", "egaer"],
            ["no mode 'egaer'; did you mean 'eager'?", "the modes are eager, default"],
        ),
        (["profile", "--device", "gpu"], ["no device 'gpu'", "a GPU is --device cuda"]),
        (["profile", "--format", "jsn"], ["no format 'jsn'; did you mean 'json'?", "one of "]),
        (
            ["profile", "--format", "json", "--format", "text"],
            ["two formats cannot share stdout", "json=report.json"],
        ),
        (["profile", "--format", f"json={__file__}/x"], [f"cannot write to {__file__}/x"]),
        (["profile", "--format", "json=/dev/stdout"], ["cannot write to /dev/stdout"]),
        (["compare", "a", "b", "--format", "json=-"], ["cannot write to -"]),
        (
            ["extract", "report.html", "-o", "-"],
            ["cannot write to -", "write to stdout if no path is given"],
        ),
        (["profile", "-o", __file__], [f"cannot write to {__file__}: ", "-o"]),
        (["profile", "-o", "/proc/kgprof"], ["cannot write to /proc/kgprof: ", "-o"]),
        (["profile", "--", "--qeries", "3"], ["--queries", "kgprof profile linkpred -- --help"]),
        (["report", "/nowhere"], ["/nowhere: file or folder not found", "kgprof profile"]),
        (["report", str(ROOT)], [f"{ROOT}: no Recording found", "kgprof profile"]),
        (
            ["report", "a" * 300],
            [f"{'a' * 300}: File name too long", "choose a path"],
        ),
        (
            ["report", ""],
            ["'[RECORDING]': it is empty; give a file or folder", "see kgprof report --help"],
        ),
        (["profile", "-o", ""], ["'--output': it is empty", "see kgprof profile --help"]),
        (
            ["extract", "/nowhere.html"],
            ["/nowhere.html: file not found", "give a report.html written by kgprof"],
        ),
        (["report"], ["report needs exactly one input", "give a RECORDING, or --torch-trace DIR"]),
        (
            ["explain", "KGP510"],
            ["no rule 'KGP510'; did you mean 'KGP", "`kgprof explain` lists them all"],
        ),
        (["explain", "kgp510"], ["no rule 'kgp510'; did you mean 'KGP"]),
        (["explain", "kgp50"], ["no rule 'kgp50'; did you mean 'KGP5"]),
        (["profile", "--evaluations", "0"], ["'--evaluations': 0 is not in the range x>=1"]),
        (
            ["check-graphs", "--evaluations", "2"],
            ["'--evaluations'", "see kgprof check-graphs --help"],
        ),
        (["profile", "--rounds", "0"], ["'--rounds': 0 is not in the range 1<=x<=1000"]),
        (["check-graphs", "--rounds", "2"], ["'--rounds'", "see kgprof check-graphs --help"]),
        (
            ["profile", __file__, "--rounds", "2"],
            ["--rounds 2 does not work for a script", "file.py:name"],
        ),
        (
            ["profile", __file__, "--mode", "default"],
            [
                "--mode does not work for a script",
                "model = torch.compile(model)",
                f"kgprof sweep {__file__}",
            ],
        ),
        (
            ["profile", "--rounds", "2", "--passes", "compile"],
            ["--rounds 2 repeats TIMING, but --passes leaves it out", "add timing to --passes"],
        ),
        (["explain", "result-differ-from-eager"], ["did you mean 'result-differs-from-eager'?"]),
    ],
)
def test_a_slip_is_one_clear_error_with_exit_code_2(
    args: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = here(args, capsys)

    assert (code, out) == (2, "")
    assert err.startswith("kgprof: error: ")
    assert "Traceback" not in err
    assert err.count("error:") == 1
    for part in expected:
        assert part in err


def test_a_folder_that_is_not_kgprofs_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("someone else's", encoding="utf-8")

    code, _, err = here(["profile", "-o", tmp_path], capsys)

    assert code == 2
    assert f"{tmp_path}/report.html already exists and is not a Recording's" in err
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "someone else's"


def test_profiling_on_windows_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kgprof.record.processes.recorder.sys.platform", "win32")

    code, _, err = here(["profile"], capsys)

    assert code == 2
    assert err.startswith("kgprof: error: `kgprof profile` does not run on Windows\n  hint: ")


@pytest.mark.parametrize("verb", ["profile", "check-graphs"])
def test_the_workloads_own_help_is_printed(verb: str, tmp_path: Path) -> None:
    done = kgprof(verb, "linkpred", "--", "--help", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "--corruptions" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, listed, _ = here(["explain"], capsys)
    code, explained, _ = here(["explain", "kgp501"], capsys)
    _, by_name, _ = here(["explain", "result-differs-from-eager"], capsys)

    assert [line.split()[0] for line in listed.splitlines()] == [rule.id for rule in RULES]
    assert {"KGP501", "KGP502", "KGP504"} <= {rule.id for rule in RULES}
    assert code == 0
    assert explained == by_name
    for heading in (
        "KGP501 result-differs-from-eager (error)",
        "\nWhy\n",
        "\nExample\n",
        "\nWhat to do\n",
    ):
        assert heading in explained


def test_a_recording_is_rendered_again_without_torch(tmp_path: Path) -> None:
    handmade.write(tmp_path / "out" / "recording")

    done = kgprof("report", "out", cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, "out/report.html\n", "")
    assert (
        (tmp_path / "out" / "report.html")
        .read_text(encoding="utf-8")
        .lower()
        .startswith("<!doctype html>")
    )
    again = kgprof("report", "out/report.html", "-o", "elsewhere", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "elsewhere/report.html\n")
    for name in ("report.html", "report.json"):
        assert (tmp_path / "out" / name).read_bytes() == (
            tmp_path / "elsewhere" / name
        ).read_bytes()


def test_formats_go_to_stdout_and_to_files_and_the_schema_describes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handmade.write(tmp_path / "recording")
    to_file = f"markdown={tmp_path / 'new' / 'report.md'}"

    code, out, err = here(["report", tmp_path, "--format", "json", "--format", to_file], capsys)
    _, schema, _ = here(["schema"], capsys)

    assert (code, err) == (0, "")
    jsonschema.validate(json.loads(out), json.loads(schema))
    assert "batched" in (tmp_path / "new" / "report.md").read_text(encoding="utf-8")
    assert not (tmp_path / "report.html").exists()


def test_each_document_fits_the_schema_of_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [tmp_path / name for name in ("one", "two", "three")]
    for side in sides:
        handmade.write(side / "recording")
    assert here(["compare", *sides, "-o", tmp_path / "all"], capsys)[0] == 0
    found = {"history": [tmp_path / "all" / "history.json"]}
    found |= {name: [*ROOT.glob(f"fixtures/{name}s/h200/*.json")] for name in ("sweep", "capture")}

    for name, files in found.items():
        code, schema, _ = here(["schema", name], capsys)
        assert (code, bool(files)) == (0, True)
        for file in files:
            jsonschema.validate(json.loads(file.read_text("utf-8")), json.loads(schema))
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({"schema_version": "one"}, json.loads(schema))


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    handmade.write(tmp_path / "recording")

    piped = subprocess.run(
        [
            "bash",
            "-c",
            'set -o pipefail; "$@" | head -c 1',
            "bash",
            *command("report", tmp_path, "--format", "html"),
        ],
        env=surroundings({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (piped.returncode, piped.stdout, piped.stderr) == (0, "<", "")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["explain"]], ids=" ".join)
def test_a_reader_of_stdout_that_has_gone_before_the_first_byte_is_none_either(
    args: list[str],
) -> None:
    done = unheard(args, "stdout", "stderr")

    assert (done.returncode, done.stderr) == (0, "")


def test_an_exit_code_stands_where_nobody_reads_stderr() -> None:
    done = unheard(["compare", "/nowhere", "/nowhere"], "stderr", "stdout")

    assert (done.returncode, done.stdout) == (2, "")


def unheard(args: Sequence[str], closed: str, heard: str) -> subprocess.CompletedProcess[str]:
    """``closed``: the stream that is a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        streams: dict[str, int] = {closed: writer, heard: subprocess.PIPE}
        return subprocess.run(
            command(*args), env=surroundings({}), text=True, check=False, **streams
        )  # type: ignore[call-overload,no-any-return]
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("args", "where", "code", "said"),
    [
        (
            ["explain"],
            ">/dev/full",
            2,
            "kgprof: error: cannot write to stdout: No space left on device\n  hint: ",
        ),
        (
            ["--help"],
            ">/dev/full",
            2,
            "kgprof: error: stdout could not be written in full: No space left on device\n",
        ),
        (["explain"], ">&-", 0, ""),
        (["compare", "/nowhere", "/nowhere"], "2>&-", 2, ""),
        (["compare", "/nowhere", "/nowhere"], "2>/dev/full", 2, ""),
    ],
)
def test_a_stream_that_is_full_or_closed_is_no_fault_of_ours(
    args: list[str], where: str, code: int, said: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$@" {where}', "bash", *command(*args)],
        env=surroundings({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr


def test_what_the_terminals_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    handmade.write(tmp_path / "recording")

    done = kgprof("report", tmp_path, "--format", "text", cwd=tmp_path, PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2013" in done.stdout


def test_a_folder_that_may_not_be_looked_into_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(path: Path) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(layout, "resolve", forbidden)  # root may look into every folder

    code, out, err = here(["report", tmp_path], capsys)

    assert (code, out) == (2, "")
    assert err == (
        f"kgprof: error: {tmp_path}: Permission denied\n  hint: choose a path that "
        "you may read and write\n"
    )


def test_a_fault_of_our_own_is_exit_3_and_its_traceback_lies_in_a_named_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handmade.write(tmp_path / "recording")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(reading, "analyse", broken)
    monkeypatch.setattr(entry.tempfile, "gettempdir", lambda: str(tmp_path))

    code, out, err = here(["report", tmp_path], capsys)

    assert (code, out) == (3, "")
    (saved,) = tmp_path.glob("kgprof-traceback-*.txt")
    assert err == (
        "kgprof: error: internal error: ZeroDivisionError: a bug\n"
        f"  hint: this is a bug in kgprof; traceback written to {saved}\n"
    )
    assert saved.read_text(encoding="utf-8").endswith("ZeroDivisionError: a bug\n")
    _, _, verbose = here(["report", "-v", tmp_path], capsys)
    assert "Traceback (most recent call last)" in verbose


def test_a_full_disk_while_rendering_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handmade.write(tmp_path / "recording")

    def full(path: Path) -> NoReturn:
        raise OutputError(f"cannot write {path}: No space left on device", hint="make room")

    monkeypatch.setattr(store, "replacing", full)

    code, _, err = here(["report", tmp_path], capsys)

    assert code == 2
    assert err.startswith(
        f"kgprof: error: cannot write {tmp_path / 'report.json'}: No space left on device\n  hint: "
    )


def test_options_come_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The workload is a wrong one, so that nothing runs where a variable is not heeded.
    for option, value, complaint in (
        ("MODE", "eager egaer", "no mode 'egaer'"),
        ("STEPS", "0", "0 is not in the range"),
        ("FORMAT", "jsn", "no format 'jsn'"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"KGPROF_PROFILE_{option}", value)
            code, _, err = here(["profile", "no-such-workload"], capsys)

        assert code == 2
        assert complaint in err


def test_no_two_options_of_a_verb_share_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for verb, command in verbs.cli.commands.items():
        prefix = f"KGPROF_{verb.upper().replace('-', '_')}"
        given = [option for option in command.params if isinstance(option, click.Option)]
        for name in {
            spelt.removeprefix("--")
            for option in given
            for spelt in option.opts
            if spelt[:2] == "--"
        }:
            variable = f"{prefix}_{name.upper().replace('-', '_')}"
            with monkeypatch.context() as patch:
                patch.setenv(variable, "1")
                context = click.Context(command, auto_envvar_prefix=prefix)
                assert (
                    sum(option.resolve_envvar_value(context) is not None for option in given) <= 1
                ), variable


# ---------------------------------------------------------------- with a plan that is refused


@pytest.mark.parametrize(
    ("args", "environment", "code", "expected"),
    [
        (
            [f"{SHAPES}:strategies", "--strategy", "prodct"],
            {},
            2,
            [
                "has no strategy 'prodct'; did you mean 'product'?",
                "it has: product, compiled, wrong",
            ],
        ),
        (
            ["linkpred", "--", "--data", "/nowhere"],
            {},
            2,
            ["/nowhere: "],
        ),
        (
            [f"{SHAPES}:eager", "--device", "cuda"],
            {"CUDA_VISIBLE_DEVICES": ""},
            2,
            ["--device cuda: torch 2.", "use --device cpu"],
        ),
        (
            [f"{SHAPES}:eager", "--mode", "default"],
            {"PATH": "/nowhere", "CXX": "no-such-compiler"},
            2,
            [
                "no C++ compiler, and Inductor needs one on the CPU",
                "no-such-compiler",
                "--mode eager",
            ],
        ),
        # of a script: test_why_nothing_compiled
        pytest.param(
            [f"{SHAPES}:eager", "--mode", "default"],
            {"TORCH_COMPILE_DISABLE": "1"},
            2,
            [
                "TORCH_COMPILE_DISABLE=1 is set, so torch.compile would compile nothing in "
                "eager.default",
                "unset",
            ],
            marks=pytest.mark.long,
        ),
    ],
    ids=["unknown-strategy", "no-data", "no-gpu", "no-compiler", "compilation-off"],
)
def test_what_cannot_run_is_refused_before_anything_is_measured(
    args: list[str], environment: dict[str, str], code: int, expected: list[str], tmp_path: Path
) -> None:
    done = forked("profile", "-o", "out", *args, cwd=tmp_path, **environment)

    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    error, *hint = error_and_hint(done.stderr)
    assert error.startswith("kgprof: error: ")
    assert [line[:8] for line in hint] in ([], ["  hint: "])
    for part in expected:
        assert part in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_workload_that_raises_while_it_is_imported_is_a_run_that_died(tmp_path: Path) -> None:
    done = forked(
        "profile",
        "-o",
        "out",
        f"{WORKLOADS / 'raises_on_import.py'}:step",
        "--format",
        "json",
        cwd=tmp_path,
    )

    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"]) == (4, 4), done.stderr
    log = Path("out", "recording", "runs", "step.as-is", "log.txt")
    # given: the file is outside of this repository, so its line is not quoted
    place, where = done.stderr.splitlines()[-2:]
    number = report["runs"][0]["exit"]["failure"]["location"]["line"]
    assert place.endswith(
        f"raises_on_import.py:{number}: RuntimeError: this module cannot be imported"
    )
    assert where == (
        f"step.as-is: while it was loaded, before anything was measured; its log: {log}"
    )
    assert "kgprof: error: " not in done.stderr
    assert "RuntimeError: this module cannot be imported" in (tmp_path / log).read_text(
        encoding="utf-8"
    )
    assert report["runs"][0]["exit"]["traceback"].endswith(
        "RuntimeError: this module cannot be imported\n"
    )
    assert (tmp_path / "out" / "report.html").is_file()


# ---------------------------------------------------------------- whole recordings


def test_the_ten_line_example_is_compiled_measured_and_reported(tmp_path: Path) -> None:
    # given: the example of the documentation, on a machine where nothing is taken for granted
    shutil.copy(WORKLOADS / "ten_lines.py", tmp_path)
    assert len((tmp_path / "ten_lines.py").read_text(encoding="utf-8").splitlines()) <= 10
    (tmp_path / "tmp").mkdir()
    # torch keeps its precompiled headers, and kgprof the files of its probe, where the next run
    # finds them
    kept = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    kept.mkdir(exist_ok=True)
    (tmp_path / "tmp" / kept.name).symlink_to(kept)
    environment = surroundings({"KGPROF_PROFILE_STEPS": "6", "TMPDIR": str(tmp_path / "tmp")})
    environment.pop("TORCHINDUCTOR_VEC_ISA_OK", None)

    # when
    done = subprocess.run(
        command(
            "profile", "ten_lines.py:step", "--device", "cpu", "--mode", "eager", "--mode", "as-is"
        ),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    # then: the last line on stdout is the report's path, and it stands where it should
    assert done.returncode == 0, done.stderr
    (last,) = done.stdout.splitlines()
    report = tmp_path / last
    assert report.parent.parent == tmp_path / "reports"
    assert report.parent.name.startswith("ten_lines-step-20")
    recording = recordings.load(report)
    document = json.loads(report.with_name("report.json").read_text(encoding="utf-8"))
    assert document["exit_code"] == 0
    assert document["options"]["steps"] == 6

    # the eager run compiled nothing, the example as it stands did, and both gave the same result
    eager, as_is = recording.runs
    assert [run.exit.outcome for run in recording.runs] == ["ok", "ok"]
    assert isinstance(eager.compile, CompilePass)
    assert eager.compile.compilations == ()
    assert eager.kernels == Skipped(reason="mode eager has no Inductor kernels")
    assert isinstance(as_is.compile, CompilePass)
    assert [row.function for row in as_is.compile.compilations] == ["step"]
    assert [run["agreement"]["verdict"] for run in document["runs"]] == ["equal", "equal"]
    assert recording.header.plan.baseline == RunKey(strategy="step", mode="eager")

    # Inductor's C++ kernels have names in KERNELS, and have none in TRACE
    assert isinstance(as_is.kernels, TracePass)
    assert kernels_of_inductor(layout.trace_path(recording, as_is.key, PassName.KERNELS))
    assert not kernels_of_inductor(layout.trace_path(recording, as_is.key, PassName.TRACE))

    # the plan makes no vector-ISA probe for runs that may not compile; nothing was left in the
    # temporary folder
    why = "a run's own process runs it when it first uses Inductor, so it is not timed"
    assert recording.header.plan.vector_isa_probe_s == Skipped(reason=why)
    assert not recording.header.plan.vector_isa_works
    assert not list((tmp_path / "tmp").glob("kgprof-*"))

    # progress is one plain line a phase
    phases = [
        line.split("s  ", 1)[1] for line in done.stderr.splitlines() if line.startswith("kgprof:  ")
    ]
    measured = ["starting the process", "compile", "timing", "trace", "host", "stack"]
    in_second_process = {
        "eager": ["starting the process", "memory"],
        "as-is": ["starting the process", "memory", "kernels"],
    }
    assert phases[0].startswith("until it is complete, the result is in ")
    first = [
        "loading the workload",
        *(f"step.{mode}  {phase}" for mode in in_second_process for phase in measured),
    ]
    assert phases[1 : len(first) + 1] == first
    later = phases[len(first) + 1 :]  # of two processes at a time, and the comparison's
    for mode, phase_names in in_second_process.items():
        assert [line for line in later if line.startswith(f"step.{mode}")] == [
            f"step.{mode}  {x}" for x in phase_names
        ]
    assert sum(map(len, in_second_process.values())) + later.count("comparing results") == len(
        later
    )
    assert "comparing results" in later


def kernels_of_inductor(trace: Path) -> list[str]:
    with gzip.open(trace, "rt", encoding="utf-8") as text:
        events: list[dict[str, Any]] = json.load(text)["traceEvents"]
    return [event["name"] for event in events if "cpp_fused" in event["name"]]


def test_strategies_that_die_leave_the_others_results(tmp_path: Path) -> None:
    done = forked(
        "profile",
        f"{MISBEHAVING}:strategies",
        "-o",
        "out",
        "--steps",
        "5",
        "--format",
        "json",
        "--format",
        "text=summary.txt",
        "--passes",
        "compile,timing,trace,host",
        cwd=tmp_path,
    )

    # stdout is one valid JSON document, and nothing that the workload printed
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["exit_code"] == 4
    assert [(run["key"]["strategy"], run["exit"]["outcome"]) for run in document["runs"]] == [
        ("good", "ok"),
        ("raises", "raised"),
        ("killed", "killed"),
        ("segfaults", "killed"),
        ("leaves", "raised"),
        ("also_good", "ok"),
    ]
    times = [run["step"]["kind"] for run in document["runs"]]
    assert times == ["spread", "skipped", "spread", "skipped", "skipped", "spread"]
    assert (tmp_path / "summary.txt").stat().st_size > 0
    assert (tmp_path / "out" / "report.html").stat().st_size > 0

    # each death is one error with the process's own exit code and its log
    logs = f"  hint: its log: out/recording/runs/{{}}.as-is/{layout.LOG}"
    assert ": ValueError: the second step does not work\n" in done.stderr
    log = logs.format("raises").removeprefix("  hint: ")
    where = f"raises.as-is: in step 2 of 5 of COMPILE, before anything was measured; {log}"
    assert where in done.stderr.splitlines()
    errors = [
        line
        for line in error_and_hint(done.stderr)
        if line.startswith(("kgprof: error: ", "  hint: its log: "))
    ]
    assert errors[:6] == [
        "kgprof: error: killed.as-is was killed during TRACE: SIGKILL (exit code -9)",
        logs.format("killed"),
        "kgprof: error: segfaults.as-is was killed during COMPILE: SIGSEGV (exit code -11)",
        logs.format("segfaults"),
        "kgprof: error: leaves.as-is raised during COMPILE: the process exited with code 7 (exit "
        "code 7)",
        logs.format("leaves"),
    ]
    raised, killed, crashed = recordings.load(tmp_path / "out").runs[1:4]
    assert raised.exit.traceback.splitlines()[1].strip().startswith(f'File "{MISBEHAVING}"')
    assert killed.log.endswith("last words\n")
    assert isinstance(killed.compile, CompilePass)  # a SIGKILL costs the pass that was running
    assert killed.trace == killed.host == Skipped(reason="the run was killed during TRACE: SIGKILL")
    assert f'File "{MISBEHAVING}", line ' in crashed.log  # where, from faulthandler
    assert "Traceback" not in done.stderr


HANGS = """
import time
calls = []
def hangs():
    calls.append(1)
    if len(calls) > 1:
        print("now it hangs")
        open("hangs", "w").close()
        time.sleep(3600)
"""
# A child's time is up when it hangs, however long a busy machine takes to import torch before that.
# What counts the seconds themselves is in tests/record/processes/test_children.py.
UP_WHEN_IT_HANGS = """
import os, queue, time
from kgprof.record.processes import children
await_news = children._Child._await_news
def until_it_hangs(child, timeout_s):
    while child._process.poll() is None:
        if os.path.exists("hangs"):
            raise queue.Empty
        time.sleep(0.05)
    await_news(child, timeout_s)
children._Child._await_news = until_it_hangs
"""


def test_a_workload_that_hangs_is_ended_after_its_time(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS, encoding="utf-8")
    program, *args = command("profile", "hangs.py:hangs", "-o", "out", "--timeout", "15", "-q")[2:]

    done = subprocess.run(
        [sys.executable, "-c", UP_WHEN_IT_HANGS + program, *args],
        cwd=tmp_path,
        env=surroundings({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert (done.returncode, done.stdout) == (4, "out/report.html\n")
    assert done.stderr.splitlines() == [
        "kgprof: error: hangs.as-is timed out during COMPILE: timed out after 15 s (--timeout) "
        "(exit code -15)",
        "  hint: its log: out/recording/runs/hangs.as-is/log.txt",
    ]
    (hung,) = recordings.load(tmp_path / "out").runs
    assert "now it hangs" in hung.log
    assert "in hangs" in hung.log  # where it hung, from faulthandler


# SIGTERM in a pass is in tests/cli/test_endings.py too, where the child is not a real one.
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_an_interrupted_recording_is_rendered_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\n"
        "def quick(): return 1\n"
        "def slow():\n"
        "    open('pid', 'w').write(str(os.getpid()))\n"
        "    time.sleep(3600)\n"
        "class Both: strategies = {'quick': quick, 'slow': slow, 'later': quick}\n"
        "both = Both()\n",
        encoding="utf-8",
    )
    with subprocess.Popen(
        command("profile", "slow.py:both", "-o", "out", "--steps", "4", "--passes", "compile"),
        cwd=tmp_path,
        env=surroundings({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        wait_for(tmp_path / "pid", running)
        running.send_signal(number)
        out, err = running.communicate()

    assert running.returncode == 130, err
    assert out == "out/report.html\n"
    recording = recordings.load(tmp_path / "out")
    assert recording.header.interrupted
    assert [run.exit.outcome for run in recording.runs] == ["ok", "interrupted", "interrupted"]
    assert recording.runs[1].exit.during == "compile"
    assert recording.runs[2].exit.message == "never started: kgprof was interrupted before it"
    # the third run has none
    assert re.findall(r"its log: (.*)", err) == ["out/recording/runs/slow.as-is/log.txt"]
    assert (
        json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["exit_code"]
        == 130
    )
    assert is_gone(int((tmp_path / "pid").read_text(encoding="ascii")))


def wait_for(path: Path, running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text(encoding="ascii")):
        assert running.poll() is None, "it ended too early"
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


@pytest.mark.long
def test_without_a_compiler_the_eager_run_is_kept(tmp_path: Path) -> None:
    done = kgprof(
        "profile",
        f"{SHAPES}:eager",
        *("--mode", "eager", "--mode", "default", "--steps", "5", "-o", "out"),
        cwd=tmp_path,
        PATH="/nowhere",
        CXX="no-such-compiler",
    )

    assert (done.returncode, done.stdout) == (4, "out/report.html\n"), done.stderr
    eager, compiled = recordings.load(tmp_path / "out").runs
    assert eager.exit.outcome == "ok"
    assert compiled.exit.outcome == "raised"
    assert compiled.exit.message.startswith("no C++ compiler, and Inductor needs one on the CPU")
    assert "eager.default raised during PREPARE: no C++ compiler" in done.stderr


@pytest.mark.long
def test_whole_evaluations_are_timed_and_a_workloads_own_results_compared(tmp_path: Path) -> None:
    done = kgprof(
        "profile",
        f"{SHAPES}:counters",
        "--steps",
        "5",
        "--evaluations",
        "2",
        "-o",
        "out",
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    recording = recordings.load(tmp_path / "out")
    for run in recording.runs:
        assert not isinstance(run.timing, Skipped)
        assert [len(steps) for steps in run.timing.step_us] == [4, 4]
        assert len(run.timing.evaluation_s) == 2
        assert run.evaluation == Skipped(reason="its evaluate() counts no units of work")
    assert not isinstance(recording.agreement, Skipped)
    assert [key.slug for key, _ in recording.agreement.runs] == ["small.as-is", "large.as-is"]
    assert recording.agreement.runs[1][1].verdict == "equal"  # type: ignore[union-attr]


def test_what_a_workload_prints_goes_to_its_log(tmp_path: Path) -> None:
    # given: an older Recording in the same place, which is replaced
    handmade.write(tmp_path / "out" / "recording")

    done = forked(
        "profile",
        f"{SHAPES}:speaks",
        "-o",
        "out",
        "--steps",
        "4",
        "--passes",
        "compile,timing",
        cwd=tmp_path,
    )

    assert (done.returncode, done.stdout) == (0, "out/report.html\n"), done.stderr
    assert "a line on" not in done.stderr
    (run,) = recordings.load(tmp_path / "out").runs
    compile_part = run.log.partition("[kgprof: compile]\n")[2].partition("[kgprof: timing]\n")[0]
    assert compile_part == "a line on stdout\na line on stderr\n" * 4


def test_a_disk_that_fills_up_is_one_clear_error(tmp_path: Path) -> None:
    done = forked(
        "profile", f"{MISBEHAVING}:fills_the_disk", "-o", "out", "--steps", "4", cwd=tmp_path
    )

    assert (done.returncode, done.stdout) == (2, "")
    error, hint = error_and_hint(done.stderr)
    assert error.startswith("kgprof: error: cannot write ")
    assert error.endswith(": File too large")
    assert hint.startswith(
        "  hint: free some disk space, or choose a writable place; what was measured is in "
        "out/recording."
    )
    (run,) = recordings.load(tmp_path / "out").runs
    assert (run.exit.outcome, run.exit.during) == ("raised", "compile")


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KGPROF_")]:
        monkeypatch.delenv(name)
