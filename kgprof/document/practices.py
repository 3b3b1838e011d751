"""What to do next, at most three things; the checklist and the trade-offs: in the order and the
words that every renderer uses."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.document.finding_list import Anchors, fix_label, place, to_do
from kgprof.document.quantity import DASH, duration, figure, or_dash, rounded
from kgprof.document.table import Fact, Shown, timed
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


def tally(items: Sequence[m.ChecklistItem]) -> str:
    """ "2 fail, 7 pass, 3 not observed"."""
    counts = Counter(item.status for item in items)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def practices(items: Sequence[m.ChecklistItem], anchors: Anchors) -> Sequence[Shown]:
    """What failed first. ``anchors``: where each finding stands on the page, by its fingerprint."""
    shown = []
    for item in sorted(items, key=lambda item: STATUSES.index(item.status)):
        found = dict.fromkeys(anchors[mark] for mark in item.findings if mark in anchors)
        practice = Shown(
            status=item.status,
            mark=MARKS[item.status],
            title=item.title,
            evidence=item.evidence,
            anchors=[*found],  # of the findings that speak against it
        )
        shown.append(practice)
    return shown


def memory_contract(profile: m.Profile, anchors: Anchors) -> Sequence[Shown]:
    """What CUDA graphs ask of the tensors: where they lie, who writes to them, how long they
    live."""
    return practices([item for item in profile.checklist if item.id in MEMORY_CONTRACT], anchors)


def weighings(profile: m.Profile) -> Sequence[Shown]:
    weighed = []
    for trade_off in profile.trade_offs:
        guarded = trade_off.guarded.slug
        always = trade_off.always.slug
        figures = (
            _fact("extra syncs per step", trade_off.syncs_per_step),
            _fact("wait per step, ms", trade_off.sync_us, 1e-3),
            _fact(f"saved before that wait, ms/{trade_off.saved_per}", trade_off.saved_us, 1e-3),
            _fact(guarded, trade_off.net),
            _fact(always, trade_off.net_always),
        )
        weighing = Shown(
            verdict=WEIGHED.get(trade_off.verdict, trade_off.verdict),
            text=trade_off.text,
            place=place(trade_off.location, profile.source_root),
            guarded=guarded,
            always=always,
            figures=figures,
        )
        weighed.append(weighing)
    return weighed


def _fact(name: str, value: float | m.Time, scale: float = 1.0) -> Fact:
    """``scale``: of a number; a time says its unit itself."""
    if isinstance(value, m.Skipped):
        return name, m.Skipped(f"{DASH} ({value.reason})")
    if isinstance(value, m.Spread):
        cell = timed(value, 1.0, f" {value.unit}")
        if value.unit == "us":
            cell = timed(value, 1e-3, " ms")
        return name, f"{cell.text} ({cell.detail})"
    return name, figure(value * scale)


NEXT_STEPS = "What to do next"
_PER = {"step": "per step", m.MEAN_STEP: "per mean step", "run": "in this run"}


def next_steps(profile: m.Profile) -> Iterator[tuple[str, str, str]]:
    """Of each action what happens, what to do, and what that saves at most."""
    root = profile.source_root
    for action in profile.actions:
        saves = action.saves
        if isinstance(saves, m.Saving):
            share = or_dash(action.share, lambda share: f"{rounded(share)} of the step", "")
            per = _PER.get(saves.per, "of the traced window")
            bound = ", ".join(filter(None, (share, saves.how)))
            amount = f"saves at most {duration(saves.us_per_step)} {per} ({bound})"
        else:
            amount = f"saves: not known ({saves.reason})"
        where = [f"{relative(file, root)}:{ranges(at)}" for file, at in action.lines.items()]
        about = ", ".join((action.run.slug, action.rule, *where))
        yield f"{action.text} ({about})", _what(profile, action), amount


def _what(profile: m.Profile, action: m.Action) -> str:
    """Code where there is any, else why there is none, or what the rule says."""
    if action.fix:
        return f"{fix_label(action)}: {action.fix}"
    if action.no_fix:
        return f"no fix as code: {action.no_fix}"
    return f"what to do: {to_do(profile, action)}"
