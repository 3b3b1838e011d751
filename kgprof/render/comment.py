"""What a reviewer sees of a comment before anything is opened: a line of verdict, three rows, the cause and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from kgprof import model as m
from kgprof.measures.ranked import over_rounds
from kgprof.measures.times import PER_STEP, per_unit
from kgprof.render import compare_words
from kgprof.render.escaping import clip, escaped, one_line
from kgprof.render.finding_groups import failing
from kgprof.render.quantity import amount
from kgprof.wording import figure, plural, relative

ADDRESS = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&*+,;=%-]+")
VERDICT, _TEXT, _NAME = 220, 240, 60  # characters: of the first line, of cause and fix, of a name
_ROWS = 3
_SYMBOLS = {"ok": "✅", "attention": "⚠️", "failed": "❌", "inconclusive": "❔"}
_STATUS = {"attention": "Attention", "failed": "Failed", "inconclusive": "Inconclusive"}
# src/step.py:41, step(), .item(), mode='default', torch.where, fused.reduce-overhead, fused_add_3
_CODE = re.compile(
    r"(?<![\w/.])[\w./-]*\w\.py(?::\d+)?\b|\.?\b[A-Za-z_][\w.]*\([^()\s`]*\)|"
    r"\b[A-Za-z]\w*=(?:'[^'`]*'|True\b|False\b)|\b[A-Za-z_]\w*(?:\.\w+)+(?:-\w+)*|\b[A-Za-z]\w*_\w+\b"
)


def blob(profile: m.Profile, source_url: str) -> str:
    """What the address of a file of the repository begins with, at the commit that was measured; empty: not known."""
    commit, dirty = profile.environment.git_commit, profile.environment.git_dirty
    known = ADDRESS.fullmatch(source_url) and isinstance(commit, str) and dirty is False
    return f"{source_url}/blob/{commit}/" if known else ""


class Front:
    """``source_url``: the repository's, from which a line of it can be linked at the commit that was measured."""

    def __init__(self, profile: m.Profile, source_url: str = "") -> None:
        self._profile = profile
        self._blob = blob(profile, source_url)

    def lines(self) -> Iterator[str]:
        """Under 1,500 characters, whatever is in the Profile."""
        profile, verdict = self._profile, self._profile.verdict
        device = escaped(profile.environment.device_name, _NAME)
        yield f"### kgprof: {code(profile.workload, _NAME)} on {device}"
        yield ""
        status = "Regression" if profile.comparison and verdict.status == "failed" else _STATUS.get(verdict.status, "")
        lead = f"{escaped(verdict.lead, _TEXT)}; " if verdict.lead else ""
        marked = f"**{status}:** " if status else ""
        yield f"{_SYMBOLS.get(verdict.status, '❔')} {marked}{lead}{prose(verdict.text, VERDICT)}"
        yield ""
        if rows := [*self._rows()]:
            yield from table(rows)
            yield ""
        yield from (f"**{name}:** {text}\n" for name, text in self._why() if text)

    def folded(self) -> str:
        runs, findings = len(self._profile.runs), len(self._profile.findings)
        return f"All details: {plural(runs, 'run')}, {plural(findings, 'finding')}"

    # ---------------------------------------------------------------- three rows

    def _rows(self) -> Iterator[tuple[str, ...]]:
        profile = self._profile
        if profile.comparison is not None:
            yield "metric", "base", "head", "change"
            for metric in compare_words.metrics_of(profile.comparison)[:_ROWS]:
                base, head = (compare_words.value(metric, side) for side in (metric.base, metric.head))
                name = f"{escaped(metric.name, _NAME)} ({code(metric.run.slug, _NAME, cell=True)})"
                change = escaped(f"{compare_words.change(metric)}, {metric.verdict}", _NAME)
                yield name, escaped(base, 30), escaped(head, 30), change
        elif profile.gate is not None and profile.gate.budgets:
            yield "budget", "limit", "observed", "status"
            order_of = tuple(m.BudgetStatus)
            for budget in sorted(profile.gate.budgets, key=lambda each: order_of.index(each.status))[:_ROWS]:
                seen = budget.observed
                observed = "–" if isinstance(seen, m.Skipped) else amount(seen, budget.unit)  # noqa: RUF001
                name = f"{code(budget.metric, _NAME, cell=True)} ({code(budget.run.slug, _NAME, cell=True)})"
                yield name, amount(budget.limit, budget.unit), observed, str(budget.status)
        else:
            yield from self._fastest()

    def _fastest(self) -> Iterator[tuple[str, ...]]:
        """The winner, the runner-up and the baseline, on what all of them have in common."""
        sound = [run for run in self._profile.runs if not run.results_differ]
        unit = per_unit(sound[0].unit) if sound else PER_STEP
        whole = [(run, time) for run in sound if isinstance(time := over_rounds(run, unit) or run.per_unit, m.Spread)]
        stepped = [(run, time) for run in sound if isinstance(time := over_rounds(run, PER_STEP) or run.step, m.Spread)]
        timed, unit = (whole, unit) if len(whole) > 1 else (stepped, PER_STEP)
        if not timed:
            return
        yield "run", unit.name, "speed-up", "first call"
        ranked = sorted(timed, key=lambda each: each[1].median)
        shown = [*ranked[:_ROWS]]
        base = next((each for each in ranked if each[0].is_baseline), None)
        if base is not None and base not in shown:
            shown[-1] = base
        for run, time in shown:
            speedup = "baseline" if run.is_baseline else "–"  # noqa: RUF001
            if base is not None and not run.is_baseline and not isinstance(run.speedup, m.Skipped):
                speedup = f"{figure(base[1].median / time.median)}×"
            first = run.compile if isinstance(run.compile, m.Skipped) else run.compile.first_call_s
            starts = "–" if isinstance(first, m.Skipped) else f"{figure(first)} s"  # noqa: RUF001
            yield code(run.key.slug, _NAME, cell=True), unit.bare(time.median), speedup, starts

    # ---------------------------------------------------------------- why, and what to do

    def _why(self) -> Iterator[tuple[str, str]]:
        profile, found = self._profile, self._profile.comparison
        if found is not None:
            if found.causes:
                cause = found.causes[0]
                yield "Cause", self._stated(cause.rule, cause.text, cause.place)
                yield "Fix", self._remedy(cause.rule)
            return
        if profile.actions:
            action = profile.actions[0]
            yield "Cause", self._stated(action.rule, f"{action.run.slug}: {action.text}", action.location)
            yield "Fix", code(action.fix, _TEXT) or prose(action.no_fix, _TEXT) or self._remedy(action.rule)
            return
        fails = failing(profile)
        order = (f for level in m.Level for f in profile.findings if f.level is level and not f.accepted)
        worst = next((f for f in profile.findings if f in fails), None) or next(order, None)
        if worst is not None and worst.level is not m.Level.NOTE:
            yield "Cause", self._stated(worst.rule, worst.alone, worst.location)
            yield "Fix", code(worst.fix, _TEXT) if worst.fix else self._remedy(worst.rule)

    def _stated(self, rule: str, text: str, place: m.Location | None) -> str:
        """Rule, place and sentence; the sentence of a cause may begin with its rule already."""
        named = f"{code(rule, _NAME)} " if rule else ""
        return f"{named}{self._place(place)}{prose(text.replace(f' {rule} ', ': ', 1) if rule else text, _TEXT)}"

    def _place(self, place: m.Location | None) -> str:
        if place is None:
            return ""
        file = relative(place.file, self._profile.environment.source_root)
        shown = code(f"{clip_left(file)}:{place.line}", _NAME)
        inside = not file.startswith(("/", "<", "~", "..")) and ":" not in file and len(file) <= 2 * _NAME
        if self._blob and inside:
            return f"[{shown}]({self._blob}{quote(file)}#L{place.line}) "
        return f"{shown} "

    def _remedy(self, rule: str) -> str:
        remedy = next((known.remedy for known in self._profile.rules if known.id == rule), "")
        return prose(whole_sentences(remedy, _TEXT), _TEXT)


# ---------------------------------------------------------------- Markdown


def code(text: str, limit: int, *, cell: bool = False) -> str:
    """A code span, if nothing in the text means anything there; else the text, escaped. ``cell``: of a table."""
    shown = one_line(text, limit, words=True)
    if not shown or not set("`<>&@#").isdisjoint(shown):
        return escaped(shown, limit)
    whole = shown.removesuffix("\N{HORIZONTAL ELLIPSIS}")
    return f"`{whole.replace('|', chr(92) + '|') if cell else whole}`{shown[len(whole) :]}"


def prose(text: str, limit: int) -> str:
    """A sentence of ours with what is code in it as code; all else means nothing to Markdown. It is cut between words,
    outside of code."""
    whole, done = one_line(text, 4 * limit), 0
    shown = clip(_CODE.sub(lambda code: code[0].replace(" ", "_"), whole), limit, words=True)
    end = len(shown) - (len(whole) > limit)
    parts: list[str] = []
    for found in _CODE.finditer(whole):
        if found.end() <= end:
            parts += [_plain(whole[done : found.start()], first=not parts), f"`{found[0]}`"]
            done = found.end()
    return "".join((*parts, _plain(whole[done:end] + shown[end:], first=not parts)))


def _plain(text: str, *, first: bool) -> str:
    """Escaped with the spaces around it; what steers only at the start of a line does not behind something else."""
    inner = text.strip()
    start = text.index(inner) if inner else len(text)
    shown = escaped(inner, len(inner)) if first else escaped(f"x{inner}", len(inner) + 1)[1:]
    return f"{text[:start]}{shown}{text[start + len(inner) :]}"


def whole_sentences(text: str, limit: int) -> str:
    """As many of the first as there is room for; the first one always."""
    shown = ""
    for sentence in re.split(r"(?<=\.)\s+(?=[A-Z])", text):
        if shown and len(shown) + len(sentence) + 1 > limit:
            break
        shown = f"{shown} {sentence}".strip()
    return shown


def clip_left(file: str) -> str:
    """The end of a long path, which tells more than its beginning."""
    return file if len(file) <= _NAME - 8 else f"\N{HORIZONTAL ELLIPSIS}{file[-(_NAME - 9) :]}"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *others = rows
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join((':--', *('--:' for _ in head[1:])))} |"
    yield from (f"| {' | '.join(row)} |" for row in others)
