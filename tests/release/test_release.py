"""What a release is made from is current: the lock, the bill of materials, and workflows with no
more rights than they need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release import lock, sbom

WORKFLOWS = lock.ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in WORKFLOWS.iterdir())
DOWNLOAD = (sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
# Every right that a job may have to write, and why it needs it stands in the workflow.
WRITES = {
    ("release.yml", "attest"): {"id-token", "attestations"},
    ("release.yml", "publish"): {"id-token"},
    ("release.yml", "release"): {"contents"},
}


def jobs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text("utf-8"))["jobs"]
    return found


def test_the_lock_has_the_pins_and_hashes_for_each() -> None:
    blocks = lock.blocks()

    assert lock.pins(lock.LOCKED) == lock.pins()
    assert set(blocks) == set(lock.pins())
    assert [name for name, block in blocks.items() if not lock.hashes(block)] == []


def test_pip_refuses_what_has_another_hash_than_the_lock(tmp_path: Path) -> None:
    # given: a wheel that pip finds under the name and version, with other bytes
    version = lock.pins()["iniconfig"]
    (tmp_path / f"iniconfig-{version}-py3-none-any.whl").write_bytes(b"PK\x05\x06" + bytes(18))
    wanted = tmp_path / "wanted.txt"
    wanted.write_text(lock.blocks()["iniconfig"], "utf-8")

    done = subprocess.run(
        [*DOWNLOAD, "--no-index", "--find-links", tmp_path, "-d", tmp_path / "out", "-r", wanted],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_bill_of_materials_is_current() -> None:
    assert sbom.SBOM.read_text("utf-8") == sbom.made()


def test_the_bill_of_materials_has_what_kgprof_asks_for_with_hashes() -> None:
    found = json.loads(sbom.SBOM.read_text("utf-8"))
    components = {each["name"]: each for each in found["components"]}

    assert {"torch", "click", "jinja2", "rich", "msgspec", "numpy"} <= set(components)
    assert "mypy" not in components
    assert all(each["externalReferences"][0]["hashes"] for each in components.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_pins_its_actions_and_says_its_rights(name: str) -> None:
    text = (WORKFLOWS / name).read_text("utf-8")

    assert yaml.safe_load(text)["permissions"] == {}
    for job, wanted in jobs(name).items():
        writes = {right for right, level in wanted["permissions"].items() if level != "read"}
        assert writes == WRITES.get((name, job), set()), job
        assert all(PINNED.fullmatch(step["uses"]) for step in wanted["steps"] if "uses" in step)
        assert all(not step.get("with", {}).get("persist-credentials") for step in wanted["steps"])
    assert "secrets." not in text


@pytest.mark.parametrize("persona", ["regular", "pedantic"])
def test_zizmor_finds_nothing_in_the_workflows(persona: str) -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", f"--persona={persona}", WORKFLOWS],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout + done.stderr


@pytest.mark.long
def test_pip_accepts_every_hash_of_the_lock(tmp_path: Path) -> None:
    """From the index: about a gigabyte."""
    wanted = tmp_path / "wanted.txt"
    wanted.write_text(lock.LOCKED.read_text("utf-8"), "utf-8")

    subprocess.run([*DOWNLOAD, "--quiet", "-d", tmp_path / "files", "-r", wanted], check=True)

    assert len(list((tmp_path / "files").iterdir())) == len(lock.pins())
