"""What ``pip install kgprof`` installs on Linux with torch's build for a CPU, as a CycloneDX bill
of materials: names, versions and hashes of the lock.

    python -m tests.release.sbom        # makes sbom.cdx.json; asks no network
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from kgprof import __version__
from tests.release import lock

SBOM = lock.ROOT / "sbom.cdx.json"
PROJECT = f"""\
[project]
name = "kgprof"
version = "{__version__}"
license = "Apache-2.0"
"""


def installed() -> list[str]:
    """The names of what kgprof needs to run, and of what that needs, as installed here, as far as
    the lock has them: another build of torch brings more."""
    waiting = [("kgprof", frozenset[str]())]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        for needed in _needed(name, extras):
            if needed not in seen:
                seen.add(needed)
                waiting.append(needed)
    return sorted({name for name, _ in seen} & lock.blocks().keys())


def _needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield lock.normal(requirement.name), frozenset(requirement.extras)


def made() -> str:
    """What the file should hold."""
    blocks = lock.blocks()
    with tempfile.TemporaryDirectory() as folder:
        requirements, project = Path(folder) / "requirements.txt", Path(folder) / "pyproject.toml"
        requirements.write_text("".join(blocks[name] for name in installed()), "utf-8")
        project.write_text(PROJECT, "utf-8")
        tool = Path(sys.executable).with_name("cyclonedx-py")
        asked = ("--output-reproducible", "--of", "JSON", "--mc-type", "library")
        done = subprocess.run(
            [tool, "requirements", requirements, "--pyproject", project, *asked],
            check=True,
            capture_output=True,
            text=True,
        )
    found = json.loads(done.stdout)
    for component in found["components"]:  # the line of the lock, with the same hashes once more
        component.pop("description")
        component["bom-ref"] = component["purl"]
    found["dependencies"] = [{"ref": component["bom-ref"]} for component in found["components"]] + [
        {"ref": found["metadata"]["component"]["bom-ref"]}
    ]
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    SBOM.write_text(made(), "utf-8")
