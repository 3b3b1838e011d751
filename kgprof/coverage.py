"""What a Profile says of its rules: where each was looked for, and why it could not be seen
elsewhere.

The collectors answer for each rule in each run (``collectors/trust/witnesses.py``); the answers
stand in the Profile as its ``coverage``. Whoever writes "pass", "fixed", "checked" or "no finding"
asks here.
"""

from collections.abc import Iterator, Sequence

from kgprof import model as m

NOT_WRITTEN_DOWN = "the kgprof that made this report did not write down what it looked for"
UNKNOWN_RULE = "the kgprof that made this report does not have this rule"


def missing(rows: Sequence[m.Coverage], run: m.RunKey | None, *rules: str) -> str:
    """Say why one of these rules may have escaped in a run; empty where all were looked for in all
    of it.

    A finding of no run (``run`` is None) is one of the whole Profile: one run that was looked at is
    enough.
    """
    if not rows:
        return NOT_WRITTEN_DOWN
    for rule in rules:
        answers = [row.missing for row in rows if rule in row.rules and run in (row.run, None)]
        if why := min(answers, key=bool, default=UNKNOWN_RULE):
            return why
    return ""


def one_sided(rows: Sequence[m.Coverage], other: Sequence[m.Coverage]) -> dict[str, list[str]]:
    """List the rules that only ``other`` looked for in a run of both, by the reason why ``rows``
    did not."""
    common = {row.run for row in rows} or {row.run for row in other}
    rules: dict[str, list[str]] = {}
    for row in other:
        if row.missing or row.run not in common:
            continue
        for rule in row.rules:
            if (why := missing(rows, row.run, rule)) and rule not in rules.get(why, ()):
                rules.setdefault(why, []).append(rule)
    return rules


def checked(rows: Sequence[m.Coverage], rules: Sequence[m.Rule]) -> tuple[m.Rule, ...]:
    """List the rules that were looked for in some run, or by which something was found."""
    known = {
        rule
        for row in rows
        if row.status is not m.CoverageStatus.NOT_LOOKED_FOR
        for rule in row.rules
    }
    return tuple(rule for rule in rules if rule.id in known)


def tally(rows: Sequence[m.Coverage], rules: Sequence[m.Rule]) -> str:
    """ "24 of 38 rules checked"."""
    if not rows:
        return "which rules were checked is not known"
    return f"{len(checked(rows, rules))} of {len(rules)} rules checked"


def gaps(rows: Sequence[m.Coverage]) -> Iterator[m.Omission]:
    """Name what could not be judged in each run, and why."""
    for row in rows:
        if row.missing:
            noun = "rule"
            if len(row.rules) > 1:
                noun = "rules"
            what = f"{noun} {', '.join(row.rules)}"
            yield m.Omission(what, row.missing, row.run)
