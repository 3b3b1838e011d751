"""A summary for a pull request: what a reviewer sees before anything is opened, a line of verdict,
three rows, the cause and the fix; everything else is folded."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from urllib.parse import quote

from kgprof import model as m
from kgprof.document import account, compare_words, environment_facts, gate_table, summary
from kgprof.document.build import COMPARED_ROWS, sections
from kgprof.document.environment_facts import cores
from kgprof.document.escaping import clip, escaped, one_line
from kgprof.document.finding_list import Found, Grouped, failing, fix_label, not_applied, to_do
from kgprof.document.quantity import DASH
from kgprof.document.sheet import Code, Section
from kgprof.document.table import Block, Facts, Fold, Note, Points, Table, Texts, View
from kgprof.document.table import markdown as table_lines
from kgprof.errors import EXIT_GATE_FAILED, EXIT_OK
from kgprof.measures.times import ranked, said
from kgprof.wording import clause, figure, plural, ranges, relative, visible

_WHOLE = 400  # characters of a comparison's first line, which ends with a clause
ADDRESS = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&*+,;=%-]+")
# characters: of the first line, of cause and fix, of a name
VERDICT, _STATED, _NAMED = 220, 240, 60
_ROWS = 3
_SYMBOLS = {"ok": "✅", "attention": "⚠️", "failed": "❌", "inconclusive": "❔"}
# src/step.py:41, step(), .item(), mode='default', torch.where, fused.reduce-overhead, fused_add_3
_CODE = re.compile(
    r"(?<![\w/.-])[\w./-]*\w\.py(?::\d+(?:[-,]\d+)*)?\b|\.?\b[A-Za-z_][\w.]{0,200}\([^()\s`]*\)|"
    r"\b[A-Za-z]\w*=(?:'[^'`]*'|True\b|False\b)|\b[A-Za-z_]\w*(?:\.\w+)+(?:-\w+)*|"
    r"\b[A-Za-z]\w*_\w+\b"
)


def blob(profile: m.Profile, source_url: str) -> str:
    """What the address of a file of the repository begins with, at the commit that was measured;
    empty: not known."""
    commit = profile.environment.git_commit
    dirty = profile.environment.git_dirty
    if ADDRESS.fullmatch(source_url) and isinstance(commit, str) and dirty is False:
        return f"{source_url}/blob/{commit}/"
    return ""


def front(profile: m.Profile, blob: str) -> Iterator[str]:
    """Under 1,500 characters, of a comparison under 2,200, whatever is in the Profile. ``blob``:
    what the address of a file begins with."""
    verdict = profile.verdict
    sentence = prose(verdict.text, VERDICT)
    if profile.comparison:
        verdict = compare_words.headline(profile)
        sentence = prose(_whole_clauses(verdict.text, VERDICT), _WHOLE)
    device = escaped(profile.environment.device_name, _NAMED)
    yield f"### kgprof: {code(profile.workload, _NAMED)} on {device}"
    yield ""
    said = clause("", escaped(verdict.lead, _STATED), "; ") + sentence
    if verdict.status is not m.VerdictStatus.OK:
        said = f"**{summary.status_word(profile)}:** {said}"
    yield f"{_SYMBOLS[summary.tone(profile)]} {said}"
    yield ""
    if rows := [*_first_rows(profile)]:
        head, *others = rows
        yield f"| {' | '.join(head)} |"
        yield f"| :--{' | --:' * (len(head) - 1)} |"
        yield from (f"| {' | '.join(row)} |" for row in others)
        yield ""
    yield from (f"**{name}:** {text}\n" for name, text in _why(profile, blob) if text)
    if profile.comparison:
        if verdict.trust:
            yield f"<sub>{escaped(verdict.trust, _STATED)}</sub>\n"
    else:
        offered: tuple[m.Finding | m.Action, ...] = (*profile.actions, *profile.findings)
        if sentence := not_applied(offered):
            yield f"<sub>{sentence}</sub>\n"


def _whole_clauses(text: str, limit: int) -> str:
    """As many of its clauses as there is room for; the first one always."""
    shown, *others = text.split("; ")
    for other in others:
        if len(shown) + len(other) > limit:
            break
        shown = f"{shown}; {other}"
    return shown


def _first_rows(profile: m.Profile) -> Iterator[Texts]:
    """A few rows below their headings."""
    if profile.comparison:
        yield "metric", "base", "head", "change"
        for metric in compare_words.in_front(profile.comparison)[:COMPARED_ROWS]:
            name = escaped(metric.name, _NAMED)
            if len(profile.comparison.runs) > 1:
                name += f" ({code(metric.run.slug, _NAMED, cell=True)})"
            sides = (compare_words.value(metric, side) for side in (metric.base, metric.head))
            mark = compare_words.SYMBOLS[metric.verdict]
            within = clause(" (", compare_words.ends(metric), ")")
            change = f"{mark} {compare_words.change(metric)}{within}, {metric.verdict}"
            yield name, *(escaped(side, _NAMED) for side in sides), escaped(change, _NAMED)
    elif profile.gate and profile.gate.budgets:
        yield "budget", "limit", "observed", "status"
        for row in gate_table.in_lines(profile.gate, rows=_ROWS).rows:
            slug, budget, *others = (cell.text for cell in row.cells)
            named = f"{code(budget, _NAMED, cell=True)} ({code(slug, _NAMED, cell=True)})"
            yield named, *others
    elif found := ranked(profile.runs):
        # The first run, the runner-up and the baseline, on what all of them have in common.
        yield "run", found.unit.name, "speed-up", "first call"
        shown = [*found.runs[:_ROWS]]
        base = next((each for each in found.runs if each[0].is_baseline), None)
        if base and base not in shown:
            shown[-1] = base
        for run, time in shown:
            name = code(run.slug, _NAMED, cell=True)
            yield name, said(time, found.unit), summary.speedup_words(run), _first_call(run)


@m.otherwise(DASH)
def _first_call(run: m.RunReport) -> str:
    return f"{figure(m.known(m.known(run.compile).first_call_s))} s"


def _why(profile: m.Profile, blob: str) -> Iterator[Note]:
    """The cause or the finding, and what to do."""

    def stated(rule: str, text: str, place: m.Location | None, lines: str = "") -> str:
        """The sentence of a cause may begin with its rule already."""
        shown = clause("", code(rule, _NAMED), " ")
        if place:
            shown += _linked(place, lines or str(place.line), profile, blob)
        if rule:
            text = text.replace(f" {rule} ", ": ", 1)
        return shown + prose(text, _STATED)

    found = profile.comparison
    if found:
        if found.causes:
            cause = found.causes[0]
            text = cause.text
            if isinstance(cause.explains_us, float):
                text += f" ({compare_words.explains(cause, found.runs)})"
            sentence = stated(cause.rule, text, cause.place)
            if compare_words.is_the_verdict(cause, profile):
                sentence = ""  # it stands in the first line
            yield "Cause", f"{sentence}{_diff(cause)}"
            yield _to_do(profile.remedy(cause.rule), compare_words.finding_of(cause, found))
        elif difference := compare_words.first_difference(found):
            text = f"{difference.aspect}: {difference.text}"
            yield "Difference", stated("", text, difference.place) + _diff(difference)
        return
    here = next((action for action in profile.actions if not action.only_on_gpu), None)
    if here:
        lines = next(map(ranges, here.lines.values()), "")
        said = f"{here.run.slug}: {here.text}"
        yield "Finding", stated(here.rule, said, here.location, lines)
        yield _to_do(to_do(profile, here), here)
        return
    fails = failing(profile)
    elsewhere = {action.rule for action in profile.actions}  # each costs on a GPU alone
    told = [f for f in profile.findings if not f.accepted and f.rule not in elsewhere]
    order = (f for level in m.Level for f in told if f.level is level)
    worst = next((f for f in profile.findings if f in fails), None) or next(order, None)
    if worst and worst.level is not m.Level.NOTE:
        yield "Finding", stated(worst.rule, worst.alone, worst.location)
        yield _to_do(profile.remedy(worst.rule), worst)


def _diff(told: m.Cause | m.WorkDifference) -> str:
    """The changed line below it, fenced; empty where none is known."""
    lines = [visible(one_line(line, _STATED)) for line in compare_words.changed_line(told)]
    if not lines:
        return ""
    return "\n\n" + "\n".join(fenced("diff", lines))


def fenced(language: str, lines: Sequence[str]) -> Iterator[str]:
    """GitHub takes ``##[name]`` anywhere in a job's log for a command of its own."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from (line.replace("##[", "#\\#[") for line in lines)
    yield fence


def _to_do(words: str, offered: m.Finding | m.Action | None = None) -> Note:
    """The code to write; without any, what is said in words."""
    if offered is not None and offered.fix:
        return fix_label(offered).capitalize(), code(offered.fix, _STATED)
    # As many of its first sentences as there is room for; the first one always, and whole.
    shown = ""
    for sentence in re.split(r"(?<=\.)\s+(?=[A-Z])", words):
        if shown and len(shown) + len(sentence) + 1 > _STATED:
            break
        shown = f"{shown} {sentence}".strip()
    return "What to do", prose(shown, _WHOLE)


def _linked(place: m.Location, lines: str, profile: m.Profile, blob: str) -> str:
    file = relative(place.file, profile.source_root)
    end = file
    if len(file) > _NAMED - 8:  # the end of a long path tells more than its beginning
        end = f"\N{HORIZONTAL ELLIPSIS}{file[-(_NAMED - 9) :]}"
    shown = code(f"{end}:{lines}", _NAMED)
    outside = file.startswith(("/", "<", "~", "..")) or ":" in file
    if blob and not outside and len(file) <= 2 * _NAMED:
        return f"[{shown}]({blob}{quote(file)}#L{place.line}) "
    return f"{shown} "


# ---------------------------------------------------------------- Markdown


def code(text: str, limit: int, *, cell: bool = False) -> str:
    """A code span, if nothing in the text means anything there; else the text, escaped. ``cell``:
    of a table."""
    shown = one_line(text, limit, words=True)
    if not shown or not set("`<>&@#").isdisjoint(shown):
        return escaped(shown, limit)
    whole = shown.removesuffix("\N{HORIZONTAL ELLIPSIS}")
    cut = shown[len(whole) :]
    if cell:
        whole = whole.replace("|", "\\|")
    return f"`{whole}`{cut}"


def prose(text: str, limit: int) -> str:
    """A sentence of ours with what is code in it as code; all else means nothing to Markdown. It is
    cut between words, outside of code."""
    whole = one_line(text, 4 * limit)
    done = 0
    shown = clip(_CODE.sub(lambda code: code[0].replace(" ", "_"), whole), limit, words=True)
    end = len(shown) - (len(whole) > limit)
    parts: list[str] = []
    for found in _CODE.finditer(whole):
        if found.end() <= end:
            parts += [_plain(whole[done : found.start()], first=not parts), f"`{found[0]}`"]
            done = found.end()
    return "".join((*parts, _plain(whole[done:end] + shown[end:], first=not parts)))


def _plain(text: str, *, first: bool) -> str:
    """Escaped with the spaces around it; what steers only at the start of a line does not behind
    something else."""
    inner = text.strip()
    if not inner:
        return text
    before, after = text.split(inner)
    if first:
        return f"{before}{escaped(inner, len(inner))}{after}"
    return f"{before}{escaped(f'x{inner}', len(inner) + 1)[1:]}{after}"


LIMIT = 60_000  # characters; GitHub refuses a comment of more than 65,536
_CLOSE = "</details>"
_RESERVE = 200  # for the lines that say what was cut
_SENTENCE = 2_000  # characters
_LEVELS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}  # noqa: RUF001 - the sign itself is meant


class Part(View, kw_only=False):
    """Head and tail stand or fall together; rows are cut from the end."""

    head: Texts
    rows: Texts = ()
    tail: Texts = ()
    noun: str = "rows"
    opens: bool = False  # a fold, which must be closed wherever the text is cut
    closes: bool = False


class Markdown:
    """For a comment, of at most LIMIT characters; a job summary may have more, and counts bytes.

    ``report_url``: where the whole report can be had. ``source_url``: of the repository, before
    ``/blob/COMMIT/FILE``.
    """

    name = "markdown"
    suffix = ".md"

    def __init__(
        self,
        report_url: str = "",
        source_url: str = "",
        *,
        limit: int = LIMIT,
        in_bytes: bool = False,
    ) -> None:
        self._limit = limit
        self._unit = "bytes" if in_bytes else "characters"
        self._report_url = report_url
        self._source_url = source_url

    def render(self, profile: m.Profile) -> str:
        head = [*front(profile, blob(profile, self._source_url))]
        if ADDRESS.fullmatch(self._report_url):
            head += [f"[The whole report]({self._report_url})", ""]
        held = f"All details: {plural(len(profile.runs), 'run')}, "
        held += plural(len(profile.findings), "finding")
        if profile.comparison:
            held = f"Details: findings {compare_words.tally(profile.comparison)}"
        parts = [
            Part(head),
            Part((f"<details><summary>{held}</summary>", ""), opens=True),
            _reasons(profile),
            *map(_part, sections(profile, wide=True)),
            Part((_CLOSE,), closes=True),
        ]
        shown = [part for part in parts if part.head or part.rows or part.tail]
        return self._fitted(shown, _last(profile))

    def _needed(self, *lines: str) -> int:
        """With their line breaks."""
        text = "\n".join((*lines, ""))
        if self._unit == "bytes":
            return len(text.encode("utf-8", errors="replace"))
        return len(text)

    def _fitted(self, parts: Sequence[Part], last: Sequence[Part]) -> str:
        """Whole parts while they fit; of the first that does not, the rows that do, and a line that
        says so.

        ``last`` always stands at the end. Whatever is cut, a folded part that was opened is closed.
        """
        end = [line for part in last for line in (*part.head, *part.rows, *part.tail, "")]
        room = self._limit - _RESERVE - self._needed(*end)
        lines: list[str] = []
        is_open = False
        for part in parts:
            left = room - self._needed(*part.head, *part.tail, "")
            if left < 0 and not part.closes:
                cut = f"*Cut at {self._limit:,} {self._unit}; report.json has everything.*"
                lines += [cut, "", *[_CLOSE] * is_open]
                break
            rows: list[str] = []
            for line in part.rows:
                left -= self._needed(line)
                if left < 0:
                    break
                rows.append(line)
            body = [*part.head, *rows, *part.tail]
            if missing := len(part.rows) - len(rows):
                body.append(f"*{missing:,} more {part.noun} cut; report.json has them.*")
            lines += [*body, ""]
            room -= self._needed(*body, "")
            is_open = part.opens or (is_open and not part.closes)
        return "\n".join([*lines, *end]).rstrip("\n") + "\n"


def _part(section: Section) -> Part:
    """Of a table the heading stands with the title, and of what follows the rows nothing is cut."""
    title = escaped(section.title, _SENTENCE)
    named = clause(": ", escaped(section.intro, _SENTENCE))
    head = []
    tail = []
    first, notes = section.blocks[:1], section.blocks[1:]
    if not all(isinstance(note, str) for note in notes):
        first, notes = section.blocks, ()
    if notes:
        tail = ["", *block_lines(notes, small=True)]
    if section.folded:
        head = [f"<details><summary>{title}{named}</summary>", ""]
        tail += ["", _CLOSE]
    elif title:
        head = [f"**{title}**{named}", ""]
    rows = block_lines(first, small=True)
    if first and isinstance(first[0], Table):
        head += rows[:2]
        rows = rows[2:]
    return Part(head, rows, tail, section.noun)


def block_lines(blocks: Iterable[Block], *, small: bool = False) -> list[str]:
    """Print one after the other, a blank line between them. ``small``: sentences between tables are
    notes."""
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append("")
        match block:
            case Table():
                lines += table_lines(block)
                if block.notes:
                    lines += ["", *block_lines(block.notes, small=small)]
            case Points():
                for number, point in enumerate(block.points, start=1):
                    mark = f"{number}." if block.numbered else "-"
                    lines.append(
                        f"{mark} {'<br>'.join(escaped(part, _SENTENCE) for part in point)}"
                    )
            case Found():
                lines += _found(block)
            case Fold():
                lines += ["<details>", f"<summary>{escaped(block.title)}</summary>", ""]
                lines += [*block_lines(block.blocks, small=small), "", _CLOSE]
            case Code():
                lines += fenced("python", [*map(visible, block.text.splitlines())])
            case Facts():
                lines += [
                    f"- {escaped(name)}: {escaped(str(value))}" for name, value in block.facts
                ]
            case (name, text):
                lines.append(f"**{escaped(name)}:** {escaped(text, _SENTENCE)}")
            case str():
                text = escaped(block, _SENTENCE)
                lines.append(f"<sub>{text}</sub>" if small else text)
    return lines


def _found(found: Found) -> Iterator[str]:
    for group, note in zip_longest(found.groups, found.notes, fillvalue=""):
        assert isinstance(group, Grouped)
        first = group.first
        line = f"**{escaped(first.rule)}** {escaped(group.line(found.root), 400)}"
        if group.cost:
            line += f"; {escaped(f'costs {group.cost}', 200)}"
        if found.struck:
            line = f"<s>{line}</s>"
        else:
            line = f"{_LEVELS[first.level]} {line}"
            if fix := code(first.fix, _STATED):
                line += f"; {fix_label(first)}: {fix}"
            elif no_fix := escaped(first.no_fix, _STATED):
                line += f"; no fix as code: {no_fix}"
        yield f"- {line} {escaped(note, _SENTENCE)}".rstrip()


def _reasons(profile: m.Profile) -> Part:
    """What else the verdict says: all of its text if the first line cut it, how far to trust it."""
    verdict, (said, more) = profile.verdict, summary.reasons(profile)
    head: list[str] = []
    if profile.comparison and profile.exit_code in (EXIT_OK, EXIT_GATE_FAILED):
        return Part(head)  # the tables and lists have all of it
    if len(verdict.text) > VERDICT:
        head += [escaped(verdict.text, 600), ""]
    if verdict.trust:
        head += [f"<sub>{escaped(verdict.trust, 600)}</sub>", ""]
    if about := "<br>".join(escaped(line, 600) for line in account.lines(profile)):
        head += [f"<sub>{about}</sub>", ""]
    reasons = [f"- {escaped(reason, 600)}" for reason in said]
    if more:
        reasons.append(f"- {more:,} more")
    return Part(head, reasons, noun="reasons")


def _last(profile: m.Profile) -> tuple[Part, Part]:
    """What a reader should know before this is shown to others, and how it was made."""
    held = Facts(environment_facts.contents(profile))
    contents = Section(environment_facts.CONTENTS, (held,), folded=True)
    environment = profile.environment
    commit = "no git commit"
    if isinstance(environment.git_commit, str):
        commit = environment.git_commit
    if environment.git_dirty is True:
        commit += " with changes"
    facts = (
        f"torch {environment.torch}",
        f"Python {environment.python}",
        *cores(environment),
        f"seed {profile.options.seed}",
        commit,
        profile.created_utc,
    )
    command = f"<sub>Reproduce: {escaped(shlex.join(profile.command), 600)}</sub>"
    made = Part((f"<sub>{escaped(', '.join(facts), 600)}</sub>", "", command))
    return _part(contents), made
