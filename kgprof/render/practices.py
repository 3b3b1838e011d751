"""The checklist and the trade-offs, in the order and the words that every renderer uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.finding_list import Place, place
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, figure, milliseconds
from kgprof.render.spread import ranged, sampled
from kgprof.render.visible import one_line

STATUSES = (
    m.PracticeStatus.FAIL,
    m.PracticeStatus.PASS,
    m.PracticeStatus.NOT_OBSERVED,
)  # in the order in which they are shown
MEMORY_CONTRACT = frozenset(
    ("buffers-allocated-once", "captured-by-reference", "no-writes-inside", "copied-outside", "steps-marked")
)
MARKS = {"fail": "\u2715", "pass": "\u2713", "not observed": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    status: str  # a word of STATUSES, for the colour
    mark: str
    word: str
    title: str
    evidence: str
    anchors: tuple[str, ...]  # of the findings that speak against it


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    verdict: str
    text: str
    place: Place | None
    guarded: str
    always: str
    figures: tuple[tuple[str, str, str], ...]  # what, figure, why there is none


def by_weight(items: Sequence[m.ChecklistItem]) -> list[m.ChecklistItem]:
    """What failed first; within one status in the order given."""
    return sorted(items, key=lambda item: STATUSES.index(item.status) if item.status in STATUSES else 0)


def tally(items: Sequence[m.ChecklistItem]) -> str:
    """ "2 fail, 7 pass, 3 not observed"."""
    counts = Counter(item.status for item in items)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def practices(profile: m.Profile, anchors: Mapping[str, str], limits: Limits) -> tuple[Practice, ...]:
    return tuple(_practice(item, anchors, limits) for item in by_weight(profile.checklist)[: limits.lines])


def memory_contract(profile: m.Profile, anchors: Mapping[str, str], limits: Limits) -> tuple[Practice, ...]:
    """What CUDA graphs ask of the tensors: where they lie, who writes to them, how long they live."""
    asked = [item for item in profile.checklist if item.id in MEMORY_CONTRACT]
    return tuple(_practice(item, anchors, limits) for item in by_weight(asked)[: limits.lines])


def _practice(item: m.ChecklistItem, anchors: Mapping[str, str], limits: Limits) -> Practice:
    known = (anchors[fingerprint] for fingerprint in item.findings if fingerprint in anchors)
    return Practice(
        status=item.status if item.status in STATUSES else "not observed",
        mark=MARKS.get(item.status, "?"),
        word=one_line(item.status, limits.name),
        title=one_line(item.title, limits.name),
        evidence=one_line(item.evidence, 2 * limits.name),
        anchors=tuple(dict.fromkeys(known))[: limits.lines],
    )


def weighings(profile: m.Profile, limits: Limits) -> tuple[Weighing, ...]:
    root = profile.environment.source_root
    return tuple(_weighing(trade_off, root, limits) for trade_off in profile.trade_offs[: limits.lines])


def _weighing(trade_off: m.TradeOff, root: str, limits: Limits) -> Weighing:
    guarded, always = (one_line(key.slug, limits.name) for key in (trade_off.guarded, trade_off.always))
    return Weighing(
        verdict=one_line(trade_off.verdict, limits.name),
        text=one_line(trade_off.text, 2 * limits.name),
        place=place(trade_off.location, root, limits) if trade_off.location else None,
        guarded=guarded,
        always=always,
        figures=tuple(
            (what, *_figure(value, limits))
            for what, value in (
                ("further reads a step", trade_off.syncs_per_step),
                ("they take, ms/step", _in_ms(trade_off.sync_us)),
                (f"work saved, ms/{one_line(trade_off.saved_per, limits.name)}", _in_ms(trade_off.saved_us)),
                (guarded, trade_off.net),
                (always, trade_off.net_always),
            )
        ),
    )


def _in_ms(us: float | m.Skipped) -> float | m.Skipped:
    return us if isinstance(us, m.Skipped) else us / 1000


def _figure(value: float | m.Spread | m.Skipped, limits: Limits) -> tuple[str, str]:
    if isinstance(value, m.Skipped):
        return DASH, one_line(value.reason, limits.name)
    if isinstance(value, m.Spread):
        return _spread(value, limits), ""
    return figure(value), ""


def _spread(value: m.Spread, limits: Limits) -> str:
    in_ms = value.unit == "us"
    scale, unit = (1e-3, "ms") if in_ms else (1.0, one_line(value.unit, limits.name))
    median = milliseconds(value.median) if in_ms else figure(value.median)
    known = ", ".join(part for part in (ranged(value, scale), sampled(value)) if part)
    return f"{median} {unit} ({known})"
