"""The reports in reports/example, from Recordings in fixtures, as today's kgprof writes them.

python -m tests.examples [FOLDER]          what `make example` runs
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Set
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof.cli.sweeping import further
from kgprof.document.capture_sheet import capture_sheet
from kgprof.document.sweep import sheet as sweep_sheet
from kgprof.measures.sweep import weighed
from kgprof.render import sheet
from tests.regressions.planted import regressions, unchanged

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "reports" / "example"
EVALUATOR = ROOT / "fixtures" / "recordings" / "evaluator_h200.tgz"
SWEPT = ("h100/linkpred", "h100/transformer-block", "h200/small-ops")
SWEEPS = tuple(ROOT / "fixtures" / "sweeps" / f"{name}.json" for name in SWEPT)
CAPTURE = ROOT / "fixtures" / "captures" / "h200" / "fusion.json"
SHOWN = ("evaluator", "comparison")  # the pages that the README has a picture of
PICTURE_BYTES = 150 * 1024
REGRESSION = "12-depth-limit-as-a-tensor"


def reports() -> dict[str, bytes]:
    """Name and content of each. What lies beside a report (its JSON, its traces) it carries
    itself."""
    regression = next(one for one in regressions() if one.name == REGRESSION)
    with tempfile.TemporaryDirectory(prefix="kgprof-examples-") as scratch:
        folder = Path(scratch)
        unpack(EVALUATOR, folder / "evaluator")
        unpack(unchanged(regression.setting, 0), folder / "main")
        unpack(regression.recording, folder / "pull-request")
        run(folder, "report", "evaluator", "--no-hta", "-o", "evaluator-report")
        run(
            folder,
            "compare",
            "main",
            "pull-request",
            "-o",
            "comparison-report",
            exit_codes={0, 1, 6},
        )
        return {
            "evaluator.html": (folder / "evaluator-report" / "report.html").read_bytes(),
            "comparison.html": (folder / "comparison-report" / "report.html").read_bytes(),
            "capture.html": captured(),
            "sweep.html": swept(),
        }


def pictures(folder: Path) -> dict[str, bytes]:
    """The first screen of each page that the README shows, as PNG of at most PICTURE_BYTES."""
    from playwright.sync_api import sync_playwright

    chromium, made = shutil.which("chromium"), {}
    if chromium is None:
        raise RuntimeError("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in SHOWN:
            for width in (1280, 1120, 960, 800, 640):  # a narrower page is a smaller picture
                page = browser.new_page(viewport={"width": width, "height": width * 5 // 8})
                page.goto((folder / f"{name}.html").resolve().as_uri())
                picture = page.screenshot(type="png", animations="disabled")
                page.close()
                if len(picture) <= PICTURE_BYTES:
                    break
            else:
                raise RuntimeError(f"no picture of {name}.html is below {PICTURE_BYTES:,} bytes")
            made[f"{name}.png"] = picture
        browser.close()
    return made


def captured() -> bytes:
    return sheet.html(capture_sheet(m.decode_json(CAPTURE.read_bytes(), m.CaptureReport))).encode()


def swept() -> bytes:
    """Three sweeps on one page, each section named by its workload and card."""
    sweeps = [m.decode_json(path.read_bytes(), m.Sweep) for path in SWEEPS]
    names = [f"{each.question.workload} ({each.question.device_name})" for each in sweeps]
    made = [sweep_sheet(weighed(each, each.executions), further(each)) for each in sweeps]
    pages = list(zip(names, made, strict=True))
    sections = (
        replace(part, title=f"{name}: {part.title}")
        for name, page in pages
        for part in page.sections
    )
    status = max((page.status for _, page in pages), key=list(m.VerdictStatus).index)
    whole = replace(
        pages[0][1],
        title="Three sweeps on two cards",
        facts=tuple(
            f"{each.question.workload}: {', '.join(page.facts)}"
            for each, page in zip(sweeps, made, strict=True)
        ),
        status=status,
        verdict="; ".join(f"{name}: {page.verdict}" for name, page in pages),
        trust="; ".join(f"{name}: {page.trust}" for name, page in pages),
        sections=tuple(sections),
    )
    return sheet.html(whole).encode()


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def run(folder: Path, *arguments: str, exit_codes: Set[int] = frozenset({0})) -> None:
    """kgprof in ``folder``, so that no path of this machine gets into a report."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KGPROF_", "GITHUB_"))
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), environment.get("PYTHONPATH")))
    )
    command = [sys.executable, "-m", "kgprof", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in exit_codes:
        raise RuntimeError(
            f"kgprof {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
        )


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLE
    folder.mkdir(parents=True, exist_ok=True)
    for made in (reports, lambda: pictures(folder)):
        for name, content in made().items():
            (folder / name).write_bytes(content)
            print(folder / name)  # noqa: T201


if __name__ == "__main__":
    main()
