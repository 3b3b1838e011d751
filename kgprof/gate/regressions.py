"""How much worse each metric may be: ``METRIC=5%``, by option or in the configuration file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kgprof.wording import nearest

OPTION = "--max-regression"
KEY = "max-regression"
_FORMERLY = (("reads-a-step", "syncs-per-step"), ("-a-step", "-per-step"), ("-an-evaluation", "-per-evaluation"))
LARGEST = 10_000.0  # percent; more is a typing mistake


def option_name(metric: str) -> str:
    """As it is written on a command line: "peak-allocated" for "peak allocated"."""
    return metric.replace(",", "").replace(" ", "-")


def parse_options(values: Sequence[str], known: Sequence[str], faults: list[str]) -> dict[str, float]:
    """Percent by metric; what is wrong goes to ``faults``."""
    budgets: dict[str, float] = {}
    for value in values:
        name, equals, percent = value.partition("=")
        if not equals:
            faults.append(f"{OPTION} {value}: a budget must be METRIC=PERCENT, such as step=5%")
            continue
        _add(budgets, name.strip(), percent, f"{OPTION} {value}", known, faults)
    return budgets


def parse_table(table: object, path: str, known: Sequence[str], faults: list[str]) -> dict[str, float]:
    """``[max-regression]`` of a configuration file: metric = 5, or "5%"."""
    budgets: dict[str, float] = {}
    if not isinstance(table, Mapping):
        faults.append(f"{path}: {KEY} must be a table, {KEY} = {{step = 5}}")
        return budgets
    for name, percent in table.items():
        _add(budgets, str(name), percent, f"{path}: {KEY}.{name}", known, faults)
    return budgets


def _add(
    budgets: dict[str, float], name: str, percent: object, place: str, known: Sequence[str], faults: list[str]
) -> None:
    names = {option_name(metric): metric for metric in known}
    for old, new in _FORMERLY:  # earlier spellings, in files and options that exist
        name = name.replace(old, new) if name not in names else name
    try:
        number = math.nan if isinstance(percent, bool) else float(str(percent).strip().removesuffix("%"))
    except ValueError:
        number = math.nan
    if name not in names:
        faults.append(f"{place}: no metric {name!r}{nearest(name, names)}")
    elif not 0 <= number <= LARGEST:
        faults.append(f"{place}: a budget must be a percentage of 0 or more (5 or 5%), got {percent!r}")
    else:
        budgets[names[name]] = number
