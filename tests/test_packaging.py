"""The wheel is what users get: built from the sdist, its console script must work from another
directory."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.release import dist

ROOT = Path(__file__).resolve().parent.parent


def declared_packages() -> set[str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return set(config["options"]["packages"].split())


def test_every_package_folder_is_declared() -> None:
    # given: a subpackage forgotten in setup.cfg works in an editable install and is missing from
    # the wheel
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "kgprof").rglob("__init__.py")
    }
    mapped = {"kgprof.templates", "kgprof.fixtures"}

    assert declared_packages() == folders | mapped


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = dist.committed(tmp_path_factory.mktemp("source") / "kgprof")
    return dist.built(source, tmp_path_factory.mktemp("dist"))


# `make dist` builds twice, too.
@pytest.mark.long
def test_a_second_build_elsewhere_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    # given: another folder, other times of the files, and no sdist in between
    source = dist.committed(tmp_path / "a folder" / "kgprof")
    for path in source.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))

    again = dist.built(source, tmp_path / "dist", ["--wheel"])

    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_wheel_holds_templates_and_no_recordings(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert "kgprof/py.typed" in names
    assert "kgprof/templates/report.html.jinja" in names
    assert "kgprof/templates/assets/report.css" in names
    tables = (
        "measures/operators.toml",
        "analysis/secrets.toml",
        "collectors/compile/library_switches.toml",
    )
    assert {f"kgprof/{table}" for table in tables} <= set(names)
    assert "kgprof/workloads/linkpred/strategies/fused.py" in names
    assert not [
        name
        for name in names
        if name.startswith(("tests/", "reports/", "kgprof/fixtures/recordings/"))
    ]


def test_console_script_works_from_another_directory(wheel: Path, tmp_path: Path) -> None:
    # given: an environment of its own that sees this one's packages, so that only kgprof comes from
    # the wheel
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    site = next((environment / "lib").glob("python3*/site-packages"))
    here = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    # The editable kgprof of this environment must not answer instead: its finder is a .pth line,
    # and .pth files are only read in site directories, not in a path added by one.
    (site / "packages-of-the-test-environment.pth").write_text(f"{here}\n", encoding="utf-8")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*install, "--prefix", str(environment), "--ignore-installed", str(wheel)], check=True
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = environment / "bin" / "kgprof"
    bare = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KGPROF"))
    }

    # when
    version = subprocess.run(
        [script, "--version"], cwd=elsewhere, env=bare, check=True, capture_output=True, text=True
    )
    python = str(environment / "bin" / "python")
    where = [python, "-c", "import kgprof, sys; print(kgprof.__file__)"]
    module = subprocess.run(
        where, cwd=elsewhere, env=bare, check=True, capture_output=True, text=True
    )
    small = [
        "--mode",
        "eager",
        "--strategy",
        "fused",
        "-o",
        "out",
        "--",
        "--queries",
        "2",
        "--corruptions",
        "2",
    ]
    profile = subprocess.run(
        [python, str(script), "profile", "linkpred", *small],
        cwd=elsewhere,
        env=bare,
        capture_output=True,
        text=True,
        check=False,
    )

    # then
    assert version.stdout.startswith("kgprof")
    assert str(environment) in module.stdout
    assert profile.returncode == 0, profile.stderr
    assert (elsewhere / "out" / "report.html").stat().st_size > 10_000
