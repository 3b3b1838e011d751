"""`kgprof check-graphs` as CI meets it: its exit codes, what stdout holds, and what it leaves in
the repository."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from kgprof import cli
from kgprof.analysis.redaction import Redactor
from kgprof.cli import reading, writing
from kgprof.collectors.trust import accepted
from kgprof.gate import judge
from kgprof.gate.settings import Configuration, combined, parse_options
from kgprof.model import AcceptedEntry, Profile
from kgprof.reading import recordings
from kgprof.record.ground.private_names import private_names
from tests import commands
from tests.analysis.recordings import died, run
from tests.gate import gated

ROOT = Path(__file__).resolve().parent.parent
GRAPHS = ROOT / "fixtures" / "workloads" / "graphs.py"
QUICK = ("--backend", "eager", "--steps", "5", "-o", "out", "--quiet")
PRINTS = next(
    n for n, line in enumerate(GRAPHS.read_text().splitlines(), start=1) if "print(" in line
)


def check(name: str, *args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, with a child of its own; the repository of ``cwd`` is none of
    kgprof's."""
    given = {**commands.without_settings(), **environment}
    return commands.run(
        *("check-graphs", f"{GRAPHS}:{name}", *QUICK, *args), cwd=cwd, environment=given
    )


def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
) -> str:
    """Exit code 2, nothing on stdout, nothing run; what was said."""
    monkeypatch.chdir(tmp_path)
    code = cli.run(["check-graphs", f"{GRAPHS}:clean", *args])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert not (tmp_path / "reports").exists()
    return said.err


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[subprocess.CompletedProcess[str], Profile]:
    """Three workloads in one recording, the last of which raises: what the command said, and the
    Profile."""
    folder = tmp_path_factory.mktemp("gate")
    done = check("every", "--format", "json", cwd=folder)
    return done, reading.read(folder / "out")


def alone(profile: Profile, strategy: str) -> Profile:
    """As if this strategy had been the only one."""
    return msgspec.structs.replace(
        profile,
        runs=tuple(run for run in profile.runs if run.key.strategy == strategy),
        findings=tuple(
            f for f in profile.findings if f.run is not None and f.run.strategy == strategy
        ),
    )


def test_a_workload_that_raises_leads_and_json_stays_json(
    recorded: tuple[subprocess.CompletedProcess[str], Profile],
) -> None:
    done, _ = recorded

    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"], report["verdict"]["status"]) == (4, 4, "failed")
    assert report["verdict"]["text"] == (
        "no verdict, the workload failed: graphs.py:26: ValueError: this step does not work "
        "(raises.as-is, in step 1 of 5 of COMPILE)"
    )
    assert any(
        one.startswith("compiles_nothing.as-is: nothing was compiled")
        for one in report["verdict"]["reasons"]
    )
    assert "this step does not work" in done.stderr
    skipped = {"kind": "skipped", "reason": "only the COMPILE pass was requested"}
    assert [run["host"] for run in report["runs"][:2]] == [skipped, skipped]


@pytest.mark.parametrize("name", ["wants_a_full_graph", "script"])
def test_a_graph_break_that_ends_the_program_is_told_at_its_line_first(
    name: str, tmp_path: Path
) -> None:
    """The exit code says that the program raised, since what would have come after the break was
    not seen."""
    # given: torch.compile(fullgraph=True) around a print, as a step and as a whole program that
    # calls it
    program = tmp_path / "step.py"
    text = GRAPHS.read_text()
    program.write_text(text if name != "script" else f"{text}\n\nwants_a_full_graph()\n")
    line = (
        text.splitlines().index(
            '    print("in the step")', text[: text.index("def wants_a")].count("\n")
        )
        + 1
    )
    workload = f"{program}:{name}" if name != "script" else str(program)

    done = commands.run(
        *("check-graphs", workload, *QUICK),
        cwd=tmp_path,
        environment=commands.without_settings(),
    )

    why = "because of print: Failed to trace builtin operator (GB0059)"
    refused = f"KGP107 compiling wants_a_full_graph raised Unsupported {why}"
    verdict = (
        f"FAILED: no verdict, the workload failed: step.py:{line}: {refused}, which "
        "ended the program: "
    )
    assert done.returncode == 4, done.stderr
    assert done.stdout.startswith(f"step.py:{line}: {refused} [")
    assert [said for said in done.stdout.splitlines() if said.startswith(verdict)], done.stdout


def test_nothing_compiled_is_no_pass(
    recorded: tuple[subprocess.CompletedProcess[str], Profile],
) -> None:
    judged = judge(alone(recorded[1], "compiles_nothing"), combined(Configuration()))

    assert (judged.exit_code, judged.verdict.status) == (5, "inconclusive")


def test_compilation_switched_off_is_no_pass_and_names_the_variable(tmp_path: Path) -> None:
    done = check("prints", "--format", "json", cwd=tmp_path, TORCH_COMPILE_DISABLE="1")

    assert done.returncode == 5, done.stderr
    assert "TORCH_COMPILE_DISABLE=1 is set" in json.loads(done.stdout)["verdict"]["text"]


def test_a_clean_workload_passes_in_every_format_at_once(tmp_path: Path) -> None:
    files = {
        "json": "r.json",
        "sarif": "r.sarif",
        "junit": "r.xml",
        "github": "r.annotations",
        "markdown": "r.md",
    }

    done = check(
        "clean", *(f"--format={name}={file}" for name, file in files.items()), cwd=tmp_path
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "OK: gate passed: 4 budgets met in 1 run"
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    sarif = json.loads((tmp_path / "r.sarif").read_text(encoding="utf-8"))["runs"][0]
    suites = ElementTree.fromstring((tmp_path / "r.xml").read_text(encoding="utf-8").encode())
    annotations = (tmp_path / "r.annotations").read_text(encoding="utf-8")
    assert (report["exit_code"], report["gate"]["backend"], report["findings"]) == (0, "eager", [])
    assert (sarif["results"], sarif["invocations"][0]["exitCode"]) == ([], 0)
    assert len(sarif["tool"]["driver"]["rules"]) == len(report["rules"]) > 0
    assert (suites.get("failures"), suites.get("errors")) == ("0", "0")
    assert annotations == "::notice title=kgprof%3A ok::gate passed: 4 budgets met in 1 run\n"
    assert "| clean.as-is | graph-breaks | 0 sites | 0 sites | held |" in (
        tmp_path / "r.md"
    ).read_text(encoding="utf-8")


def test_a_cuda_graph_budget_on_a_cpu_run_is_inconclusive(
    recorded: tuple[subprocess.CompletedProcess[str], Profile],
) -> None:
    faults: list[str] = []
    budget = parse_options(["cudagraph-skips=0"], None, None, None, faults)
    compiled = alone(recorded[1], "clean")
    by_inductor = msgspec.structs.replace(
        compiled, options=msgspec.structs.replace(compiled.options, backend="")
    )

    judged = judge(by_inductor, combined(budget, None, (), ""))

    assert judged.exit_code == 6
    assert "cudagraph-skips not observed" in judged.verdict.text


def test_a_print_in_the_step_fails_at_its_line_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # when: the gate runs
    done = check("prints", cwd=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if ": KGP101 " in line]
    # then: the workload lies in another repository, so its whole path and its lines are nobody's
    # here
    shown = Redactor(private_names({**os.environ, "PYTHONPATH": str(ROOT)}))(str(GRAPHS))
    assert lines[at].startswith(f"{shown}:{PRINTS}: KGP101 ")
    assert 'print("in the step")' not in done.stdout
    assert lines[-1] == "FAILED: gate failed: prints.as-is: 1 over the budget of 0 graph-breaks"

    # when: the Recording is read again, where none of the gate's files are
    monkeypatch.chdir(tmp_path)
    written = {
        name: (tmp_path / "out" / name).read_bytes() for name in ("report.json", "report.html")
    }
    code = cli.run(["report", "out", "-o", "again"])
    said = capsys.readouterr().out

    # then: the same verdict in the same bytes; report itself has done what it was asked for
    assert (code, said) == (0, "again/report.html\n")
    assert {name: (tmp_path / "again" / name).read_bytes() for name in written} == written
    assert cli.run(["report", "out", "--format", "text"]) == 0
    assert capsys.readouterr().out == done.stdout

    # when: what fails is written down
    recording = reading.judged_profile(recordings.load(tmp_path / "out"), ())
    code = writing.write_baseline(
        judge(recording, combined(Configuration())), combined(Configuration()), whole=True
    )

    # then: the gate waits for a reason and an owner
    assert code == 0
    assert (
        "1 of them needs a reason and an owner before the gate runs again"
        in capsys.readouterr().err
    )
    said = refused(tmp_path, monkeypatch, capsys)
    assert "reason is empty; fill it in" in said
    assert "owner is empty; fill it in" in said

    # when: they are given
    file = tmp_path / accepted.FILE
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace('reason = ""', 'reason = "a demo"').replace('owner = ""', 'owner = "ana"'),
        "utf-8",
    )
    judged = judge(recording, reading.gate_settings(Configuration(), []))

    assert judged.exit_code == 0
    assert [finding.accepted.startswith("ana, until ") for finding in judged.findings] == [True]


# ------------------------------------------------------------- what is refused before anything runs


def test_the_faults_of_options_configuration_and_accepted_findings_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.kgprof]\nfail_on = 'error'\n[tool.kgprof.max]\nrecompile = 0\n"
    )
    (tmp_path / accepted.FILE).write_text(
        "[[accepted]]\nrule = 'KGP101'\nfile = 'a.py'\nfunction = 'f'\nexpires = 2027-01-01\n"
    )

    said = refused(tmp_path, monkeypatch, capsys, "--max", "graph-breaks=none")

    assert "5 faults in the gate's settings:" in said
    for part in (
        "--max graph-breaks=none: a limit must be 0 or more, got 'none'",
        "unknown key 'fail_on' (did you mean fail-on?)",
        "no metric 'recompile' (did you mean recompiles?)",
        "reason is missing",
        "owner is missing",
    ):
        assert part in said


def test_two_configurations_in_one_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kgprof]\n")
    (tmp_path / "kgprof.toml").write_text("max = {recompiles = 1}\n")

    assert "both configure kgprof; keep one" in refused(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--fail-on", "note"], "'note' is not one of 'error', 'warning', 'never'"),
        (["--backend", "cudagraphs"], "is not one of 'inductor', 'aot_eager', 'eager'"),
        (["--max", "graph-breaks"], "a budget must be METRIC=N"),
        (["--format", "sarfi"], "did you mean 'sarif'?"),
        (["--steps", "3"], "--warmup 3 leaves no steady step of --steps 3"),
        (["--maxx", "graph-breaks=0"], "'--maxx'"),
    ],
)
def test_a_slip_is_one_clear_error(
    args: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert expected in refused(tmp_path, monkeypatch, capsys, *args)


def test_the_configuration_is_found_above_but_not_beyond_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kgprof.toml").write_text("max = {recompiles = 9}\n")
    repository = tmp_path / "repository"
    inside = repository / "src" / "package"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    faults: list[str] = []

    above = reading.gate_configuration(faults)
    (repository / ".git").mkdir()
    beyond = reading.gate_configuration(faults)
    (repository / "pyproject.toml").write_text("[tool.kgprof]\nfail-on = 'never'\n")
    own = reading.gate_configuration(faults)

    assert above.folder == str(tmp_path)
    assert beyond == Configuration(folder=str(inside))
    assert (own.folder, own.fail_on) == (str(repository), "never")
    assert faults == []


# ---------------------------------------------------------------- the baseline


def test_a_baseline_is_not_written_from_a_run_that_died(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "accepted.toml"
    settings = combined(Configuration(), path=str(file))
    dead = judge(
        gated.profile(gated.finding(), runs=(run(gated.FUSED), died(gated.BATCHED))), settings
    )

    assert writing.write_baseline(dead, settings, whole=True) == 4
    assert not file.exists()
    assert "the baseline is left as it is" in capsys.readouterr().err


def test_an_empty_baseline_says_what_may_be_done_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "accepted.toml"
    settings = combined(Configuration(), path=str(file))

    assert writing.write_baseline(judge(gated.profile(), settings), settings, whole=True) == 0

    said = (
        "0 accepted findings: nothing fails, so there is nothing to accept, and the "
        "file can be deleted"
    )
    assert capsys.readouterr().err == f"kgprof: {file}: {said}\n"
    # when: the gate reads what was written
    read = reading.gate_settings(Configuration(accepted=str(file)), [])
    assert read.notes == (
        "accepted.toml accepts nothing: --update-baseline writes what fails now into it; "
        "otherwise delete it",
    )
    assert judge(gated.profile(), read).exit_code == 0


@pytest.mark.parametrize(
    ("metric", "kept"), [("compile-seconds", []), ("cudagraph-skips", [gated.entry("KGP103")])]
)
def test_an_entry_that_matches_nothing_is_dropped_only_when_everything_was_observed(
    metric: str, kept: list[AcceptedEntry], tmp_path: Path
) -> None:
    # given: seconds can be observed on a CPU, CUDA graphs cannot
    file = tmp_path / "accepted.toml"
    limits = gated.settings((metric, 99), entries=[gated.entry("KGP103")])
    settings = msgspec.structs.replace(limits, accepted_path=str(file))

    assert writing.write_baseline(judge(gated.profile(), settings), settings, whole=True) == 0

    faults: list[str] = []
    assert list(accepted.parse(file.read_text(encoding="utf-8"), "", faults)) == kept
    assert faults == []
