"""A notebook's cells by their numbers: ``In [3]`` in place of the file name under which IPython
compiled the cell (``/tmp/ipykernel_7/12.py``, ``<ipython-input-3-0a1b>``)."""

import linecache
import sys
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec

from kgprof import model as m

T = TypeVar("T")


def named(value: T, kind: type[T]) -> T:
    """``value`` with each cell by its number wherever one is named; unchanged outside of
    IPython."""
    numbers = _numbers()
    if not numbers:
        return value
    text = msgspec.json.encode(value).decode()
    for file in sorted(numbers, key=len, reverse=True):
        text = text.replace(file, numbers[file])
    return m.decode_json(text, kind)


def _numbers() -> dict[str, str]:
    """By the file name of each cell that has run here, with its folder and without."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None:
        return {}
    compiling = getattr(ipython.get_ipython(), "compile", None)
    label: Any = getattr(compiling, "format_code_name", None)
    if label is None:
        return {}
    found = {}
    for file in tuple(linecache.cache):
        # ("Cell", "In[3]"); None for a file that is no cell
        if cell := label(file):
            found[file] = found[PurePath(file).name] = cell[1].replace("[", " [")
    return found
