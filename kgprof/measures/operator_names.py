"""What is known of torch's operators by name: operators.toml, read once."""

from __future__ import annotations

import tomllib
from importlib import resources

from kgprof import model as m

_LISTS = {
    kind: frozenset(names.split())
    for kind, names in tomllib.loads(
        resources.files("kgprof.measures").joinpath("operators.toml").read_text(encoding="utf-8")
    ).items()
}
# In the order in which they are asked; no name is in two of them.
OPERATOR_KINDS = {m.KernelKind(kind): names for kind, names in _LISTS.items() if kind != "of_no_kind"}
MULTI_WORD_OPERATORS = frozenset(name for names in _LISTS.values() for name in names if "_" in name.strip("_"))
