"""Where templates and fixtures live, whether kgprof is installed or run from a checkout."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


def directory(name: str) -> Traversable:
    """The folder ``templates`` or ``fixtures``: a package when installed, beside the package in a checkout."""
    try:
        return resources.files(f"kgprof.{name}")
    except ModuleNotFoundError:
        return Path(__file__).resolve().parents[2] / name
