"""What to do next, at most three things; the checklist and the trade-offs: in the order and the
words that every renderer uses."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.finding_list import Place, place
from kgprof.document.limits import Limits
from kgprof.document.quantity import DASH, duration, figure
from kgprof.document.table import Fact, View, timed
from kgprof.wording import ranges, relative

# In the order in which they are shown.
STATUSES = (m.PracticeStatus.FAIL, m.PracticeStatus.PASS, m.PracticeStatus.NOT_OBSERVED)
MEMORY_CONTRACT = frozenset(
    (
        "buffers-allocated-once",
        "captured-by-reference",
        "no-writes-inside",
        "copied-outside",
        "steps-marked",
    )
)
MARKS = dict(zip(STATUSES, "\N{MULTIPLICATION X}\N{CHECK MARK}?", strict=True))
# of a trade-off
WEIGHED = {m.ReadVerdict.KEEP: "keep the sync", m.ReadVerdict.REMOVE: "remove the sync"}


class Practice(View):
    status: m.PracticeStatus
    mark: str
    title: str
    evidence: str
    anchors: Sequence[str]  # of the findings that speak against it


class Weighing(View):
    verdict: str
    text: str
    place: Place | None
    guarded: str
    always: str
    figures: Sequence[Fact]


def tally(items: Sequence[m.ChecklistItem]) -> str:
    """ "2 fail, 7 pass, 3 not observed"."""
    counts = Counter(item.status for item in items)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def practices(profile: m.Profile, anchors: Mapping[str, str], limits: Limits) -> Sequence[Practice]:
    """What failed first. ``anchors``: where each finding stands on the page, by its fingerprint."""
    known = [
        [anchors[mark] for mark in item.findings if mark in anchors] for item in profile.checklist
    ]
    shown = [
        Practice(
            status=item.status,
            mark=MARKS[item.status],
            title=item.title,
            evidence=item.evidence,
            anchors=tuple(dict.fromkeys(found))[: limits.lines],
        )
        for item, found in zip(profile.checklist, known, strict=True)
    ]
    return tuple(
        sorted(shown, key=lambda practice: STATUSES.index(practice.status))[: limits.lines]
    )


def memory_contract(
    profile: m.Profile, anchors: Mapping[str, str], limits: Limits
) -> Sequence[Practice]:
    """What CUDA graphs ask of the tensors: where they lie, who writes to them, how long they
    live."""
    about = [item for item in profile.checklist if item.id in MEMORY_CONTRACT]
    return practices(replace(profile, checklist=about), anchors, limits)


def weighings(profile: m.Profile, limits: Limits) -> Sequence[Weighing]:
    weighed = []
    for trade_off in profile.trade_offs[: limits.lines]:
        guarded = trade_off.guarded.slug
        always = trade_off.always.slug
        took, saved = (
            us if isinstance(us, m.Skipped) else us / 1000
            for us in (trade_off.sync_us, trade_off.saved_us)
        )
        figures = (
            ("extra syncs per step", trade_off.syncs_per_step),
            ("wait per step, ms", took),
            (f"net saving, ms/{trade_off.saved_per}", saved),
            (guarded, trade_off.net),
            (always, trade_off.net_always),
        )
        facts = []
        for what, value in figures:
            text = figure(value) if isinstance(value, float | int) else ""
            if isinstance(value, m.Skipped):
                text = f"{DASH} ({value.reason})"
            elif isinstance(value, m.Spread):
                cell = (
                    timed(value, 1e-3, " ms")
                    if value.unit == "us"
                    else timed(value, 1.0, f" {value.unit}")
                )
                text = f"{cell.text} ({cell.detail})"
            facts.append(Fact(what, text, missing=isinstance(value, m.Skipped)))
        at = trade_off.location
        weighing = Weighing(
            verdict=WEIGHED.get(trade_off.verdict, trade_off.verdict),
            text=trade_off.text,
            place=place(at, profile.environment.source_root, limits) if at else None,
            guarded=guarded,
            always=always,
            figures=facts,
        )
        weighed.append(weighing)
    return weighed


NEXT_STEPS = "What to do next"
_PER = {"step": "per step", "run": "in this run"}


def next_steps(profile: m.Profile) -> Iterator[tuple[str, str, str]]:
    """Of each action what happens, what to do, and what that saves at most."""
    for action in profile.actions:
        amount, share, how = _saves(action)
        bound = f"saves at most {amount} ({', '.join(part for part in (share, how) if part)})"
        saves = bound if isinstance(action.saves, m.Saving) else f"saves: {amount} ({how})"
        yield f"{action.text} ({', '.join(_about(profile, action))})", _what(profile, action), saves


def _what(profile: m.Profile, action: m.Action) -> str:
    """Code where there is any, else why there is none, or what the rule says."""
    if action.fix:
        return f"fix: {action.fix}"
    if action.no_fix:
        return f"no fix: {action.no_fix}"
    return f"what to do: {profile.remedy(action.rule)}"


def _about(profile: m.Profile, action: m.Action) -> Sequence[str]:
    root = profile.environment.source_root
    where = (f"{relative(file, root)}:{ranges(lines)}" for file, lines in action.lines.items())
    return (action.run.slug, action.rule, *where)


def _saves(action: m.Action) -> tuple[str, str, str]:
    """How much, its share of the step (empty where that is not known), and what the bound is made
    of or why none is."""
    if isinstance(action.saves, m.Skipped):
        return "not known", "", action.saves.reason
    share = "" if action.share is None else f"{100 * action.share:.0f} % of the step"
    per = _PER.get(action.saves.per, "of the traced window")
    return f"{duration(action.saves.us_per_step)} {per}", share, action.saves.how
