"""Which traces a page carries: what fits, and never at the price of the page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec
import pytest

from kgprof.document.limits import importance
from kgprof.model import LogExcerpt, PassName, RunKey
from kgprof.render.embedded_profile import EMBEDDED_BYTES, TraceFile, embedded
from kgprof.render.html import MAX_BYTES, Html
from tests.render import profiles

PLENTY = 10 * EMBEDDED_BYTES


def trace(run: RunKey, size_bytes: int, *, link: str = "trace.json.gz") -> TraceFile:
    return TraceFile(
        run=run,
        measured_in=PassName.TRACE,
        size_bytes=size_bytes,
        read=lambda: bytes(size_bytes),
        file_name=f"{run.slug}.trace.json.gz",
        link=link,
    )


def test_traces_are_carried_in_their_order_as_long_as_they_fit() -> None:
    first, second, third, fourth = profiles.KEYS[:4]
    traces = (
        trace(first, 150_000),
        trace(second, 300_000),
        trace(third, 200_000),
        trace(fourth, PLENTY),
    )

    assert embedded(traces, PLENTY) == {first, third}
    assert embedded(traces, 250_000) == {first}
    assert embedded(traces, 100_000) == frozenset()
    assert embedded(traces, -1) == frozenset()
    assert traces[3].data is None  # larger than what a page may carry


def test_no_trace_is_read_for_a_page_without_room() -> None:
    def read() -> bytes:
        raise AssertionError("it was read")

    full = replace(trace(profiles.KEYS[0], 100_000), read=read)

    assert embedded([full], -1) == frozenset()
    with pytest.raises(AssertionError, match="it was read"):
        embedded([full], PLENTY)


def test_no_detail_of_a_page_goes_for_a_trace() -> None:
    # given: a page that is nearly full, and traces for which its room is too small
    profile = profiles.clean()
    log = LogExcerpt(text="<&>" * 6_500, left_out_bytes=0)
    loud = msgspec.structs.replace(
        profile, runs=tuple(msgspec.structs.replace(run, log=log) for run in profile.runs)
    )
    alone = Html().render(loud)
    traces = tuple(trace(run.key, 60_000) for run in loud.runs)

    copied: list[RunKey] = []
    traces = tuple(replace(trace, place=partial(copied.append, trace.run)) for trace in traces)
    page = Html(lambda: traces).render(loud)

    carried = page.count('class="perfetto"')
    room = MAX_BYTES - len(alone.encode())
    assert 60_000 < room < 6 * 80_000
    assert 1 <= carried < 6
    assert len(page.encode()) <= MAX_BYTES
    assert page.count("&lt;&amp;&gt;" * 6_500) == alone.count("&lt;&amp;&gt;" * 6_500) == 6
    # then: the others are put where their links lead
    order = [loud.runs[index].key for index in importance(loud.runs)]
    assert copied == order[carried:]


def test_the_same_traces_give_the_same_bytes() -> None:
    traces = (trace(profiles.EAGER, 1_000),)

    first, second = (Html(lambda: traces).render(profiles.clean()) for _ in range(2))

    assert first == second


def test_names_of_runs_and_files_are_text() -> None:
    # given: hostile names, and more traces than the page has runs
    key = RunKey(strategy=profiles.HOSTILE[0], mode='"><b>')
    traces = (trace(key, 10), trace(key, PLENTY, link='x"onclick=y'))

    page = Html(lambda: traces).render(profiles.clean())

    assert "<b>" not in page
    assert "window.pwned=1</script>" not in page
    assert 'x"onclick' not in page


def test_a_page_without_traces_has_no_word_of_them() -> None:
    page = Html().render(profiles.clean())

    assert "Trace files" not in page
    assert "Open in Perfetto" not in page.replace('Open in Perfetto"', "")
