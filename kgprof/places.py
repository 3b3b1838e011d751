"""A file as people name it: relative to the root of the sources, with forward slashes."""

from __future__ import annotations

import posixpath
import re

# The folder itself, and what stands for it in a redacted report.
_INSTALLED = re.compile(r"(?:.*/|<)(?:site|dist)-packages>?/(?P<file>.+)")


def relative(file: str, root: str) -> str:
    """``file`` as seen from ``root``; one that lies elsewhere, or is relative already, stays as it is."""
    path, top = file.replace("\\", "/"), root.replace("\\", "/").rstrip("/")
    inside = top and path.startswith(f"{top}/")
    return posixpath.normpath(path[len(top) + 1 :]) if inside else path


def shared(file: str, root: str) -> str:
    """As ``relative``; one that is installed from its site-packages on, so that two environments name it alike."""
    path = relative(file, root)
    found = _INSTALLED.fullmatch(path)
    return f"site-packages/{found['file']}" if found else path
