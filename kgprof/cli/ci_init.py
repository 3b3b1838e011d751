"""A workflow that records both sides of a pull request in turn and compares them, to be written into a repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kgprof._version import __version__
from kgprof.errors import UsageError
from kgprof.reading import files
from kgprof.render import resources

GITHUB, GITLAB = PLACES = ("github", "gitlab")
PATHS = {GITHUB: Path(".github/workflows/kgprof.yml"), GITLAB: Path(".gitlab/kgprof.yml")}
_OURS = "# Written by `kgprof ci-init "  # the first words of a file that may be replaced
_PLACEHOLDER = re.compile(r"@([A-Z]+)@")


def workflow(place: str, *, workload: str, torch: str, path: Path) -> str:
    """The text of the file ``path``. Every value is a JSON string, which YAML reads as the same string.

    ``torch``: the version to pin, as the package index names it; empty for any.
    """
    requirements = [f"kgprof=={__version__}", *([f"torch=={torch}"] if torch else [])]
    # What neither ends an HTML comment nor a YAML string; two workloads in one repository have two comments.
    values = {
        "VERSION": __version__,
        "WORKLOAD": json.dumps(workload),
        "INSTALL": json.dumps(" ".join(requirements)),
        "MARKER": re.sub(r"[^A-Za-z0-9._:/ -]", "_", workload).replace("--", "_"),
        "PATH": json.dumps(path.as_posix()),
    }
    template = (resources.directory("templates") / "ci" / f"{place}.yml").read_text(encoding="utf-8")
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def refuse_to_replace(path: Path) -> None:
    """Raises UsageError where another hand than ours wrote the file."""
    try:
        ours = files.content(path, files.TOML_BYTES).startswith(_OURS.encode())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", hint="name another file with -o"
        ) from error
    if not ours:
        raise UsageError(
            f"{path} was not written by `kgprof ci-init`", hint="name another file with -o, or replace it with --force"
        )
