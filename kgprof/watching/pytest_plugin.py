"""The fixture ``kgprof_guard``: what a test demands of code that it runs, each failure with line
and cause.

    def test_step(kgprof_guard):
        watched = kgprof_guard(step)
        for batch in batches:
            watched(batch)
        kgprof_guard.no_syncs()

Loaded by pytest in every environment that has kgprof, so nothing is imported before a test asks for
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kgprof.wording import plural

if TYPE_CHECKING:
    from kgprof import model as m
    from kgprof.watching.watch import Watch


@pytest.fixture
def kgprof_guard() -> Iterator[Guard]:
    """Call it as ``kgprof.watch``; its assertions then speak of what was watched. Watching ends
    with the test."""
    guard = Guard()
    yield guard
    guard.stop()


class Guard:
    """Each assertion fails with AssertionError on findings of level warning or error, and on what
    was not observed: no step after warm-up, no compilation while it was watched, a hook that this
    torch does not offer.

    ``notes=True`` counts findings of level note as well: a new batch at a new address, a module's
    own buffer written.
    """

    def __init__(self) -> None:
        self._watched: list[Watch] = []

    def __call__(self, fn_or_tensors: Any = None, **options: Any) -> Watch:
        """``kgprof.watch(fn_or_tensors, **options)``, one at a time: the one before stops
        listening."""
        from kgprof.watching.watch import watch

        self.stop()
        self._watched.append(watch(fn_or_tensors, **options))
        return self._watched[-1]

    def stop(self) -> None:
        for watched in self._watched:
            watched.stop()

    def no_syncs(self, *, notes: bool = False) -> None:
        """No read after warm-up for which the host waits, or would on CUDA; compiled or not."""
        __tracebackhide__ = True
        from kgprof.collectors.time import syncs

        self._demand("no GPU sync", syncs.WAITING, notes, compiled=False)

    def no_recompiles(self, *, notes: bool = False) -> None:
        """No compilation after warm-up of what had been compiled before."""
        __tracebackhide__ = True
        from kgprof.collectors.compile import recompiles

        self._demand("no recompiles", recompiles.RULES, notes)

    def no_graph_breaks(self, *, notes: bool = False) -> None:
        """Nor a function that fell back to eager."""
        __tracebackhide__ = True
        from kgprof.collectors.compile import (
            compilations,
            graph_breaks,
            runs_eagerly,
            skipped_frames,
        )

        rules = (
            *graph_breaks.RULES,
            *skipped_frames.RULES,
            *runs_eagerly.RULES,
            *compilations.RULES,
        )
        self._demand("each function is one graph", rules, notes)

    def stable_addresses(self, *, notes: bool = False) -> None:
        """Declared buffers, results that come back as inputs and inputs of CUDA graphs lie where
        they lay."""
        __tracebackhide__ = True
        from kgprof.collectors.graphs import addresses

        self._demand("tensors keep their addresses", addresses.RULES, notes, or_buffers=True)

    def no_aliasing(self, *, notes: bool = True) -> None:
        """No result shares memory with an argument or with another, and no input that is written
        overlaps one. Notes count here: a view of an argument does no harm until somebody writes,
        and it is shared memory."""
        __tracebackhide__ = True
        from kgprof.collectors.tensors import aliases

        self._demand("no shared memory", aliases.RULES, notes)

    def no_mutation(self, *, notes: bool = False) -> None:
        """Compiled code writes into no argument and no captured tensor."""
        __tracebackhide__ = True
        from kgprof.collectors.tensors import mutations

        self._demand("compiled code does not write to its inputs", mutations.RULES, notes)

    def _demand(
        self,
        demand: str,
        rules: tuple[m.Rule, ...],
        notes: bool,
        *,
        compiled: bool = True,
        or_buffers: bool = False,
    ) -> None:
        """``compiled``: something has to have been compiled; ``or_buffers``: or buffers were
        declared."""
        __tracebackhide__ = True
        from kgprof.watching.watch import line_of

        if not self._watched:
            raise AssertionError(
                f"{demand}: nothing was watched; call kgprof_guard(fn_or_tensors) first"
            )
        ids = {rule.id for rule in rules}
        found = [each for watched in self._watched for each in watched.findings if each.rule in ids]
        against = [line_of(f) for f in found if notes or f.one_off or f.counts]
        if against:
            raise AssertionError("\n".join((f"expected: {demand}", *against)))
        unseen: list[str] = []  # why an empty list of findings would prove nothing
        for watched in self._watched:
            if not watched.steps_after_warmup:
                unseen.append(f"{plural(watched.steps, 'step')} taken, none of them after warm-up")
            if (
                compiled
                and not (or_buffers and watched.declares_buffers)
                and not watched.compilations
            ):
                unseen.append(
                    "nothing was compiled while it was watched; code compiled earlier is not "
                    "analysed"
                )
            unseen += watched.unavailable
        if unseen:
            raise AssertionError("\n".join((f"expected: {demand}; this was not observed", *unseen)))
