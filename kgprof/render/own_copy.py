"""The Profile that the page carries: its element, and what of it is not there, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import carried
from kgprof.render.carried import Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCopy:
    """``text`` is empty where the page carries none."""

    id: str
    type: str
    generator: str
    text: str
    left_out: str  # for who reads the element
    without: str  # the same for people: "the logs and the timelines"


def own_copy(own: Packed, profile: m.Profile) -> OwnCopy:
    return OwnCopy(
        id=carried.ID,
        type=carried.TYPE,
        generator=f"{carried.GENERATOR} {profile.kgprof_version}",
        text=own.text,
        left_out=carried.attribute(own.left_out),
        without=_listed(own.left_out),
    )


def not_carried(own: Packed) -> tuple[str, ...]:
    """What is left out of it, and what can still be done with the page."""
    if not own.text:
        return ("its own copy of the Profile (kgprof compare and kgprof extract need report.json)",)
    if own.left_out:
        return (f"of its own copy of the Profile {_listed(own.left_out)} (kgprof compare needs none of them)",)
    return ()


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
