"""A file as people name it: relative to the root of the sources, with forward slashes."""

from __future__ import annotations

import posixpath


def relative(file: str, root: str) -> str:
    """``file`` as seen from ``root``; one that lies elsewhere, or is relative already, stays as it is."""
    path, top = file.replace("\\", "/"), root.replace("\\", "/").rstrip("/")
    inside = top and path.startswith(f"{top}/")
    return posixpath.normpath(path[len(top) + 1 :]) if inside else path
