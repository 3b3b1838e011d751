"""Which traces a page carries: what fits, and never at the price of the page."""

from __future__ import annotations

import msgspec

from kgprof.model import LogExcerpt, PassName, RunKey
from kgprof.render.hand_off import CARRIED_BYTES, TraceToHandOff, carried
from kgprof.render.html import MAX_BYTES, Html
from tests.render import profiles

PLENTY = 10 * CARRIED_BYTES


def trace(run: RunKey, size_bytes: int, *, link: str = "trace.json.gz") -> TraceToHandOff:
    data = bytes(size_bytes) if size_bytes <= CARRIED_BYTES else None
    return TraceToHandOff(
        run=run,
        measured_in=PassName.TRACE,
        size_bytes=size_bytes,
        data=data,
        file_name=f"{run.slug}.trace.json.gz",
        link=link,
    )


def test_traces_are_carried_in_their_order_as_long_as_they_fit() -> None:
    first, second, third, fourth = profiles.KEYS[:4]
    traces = (trace(first, 150_000), trace(second, 300_000), trace(third, 200_000), trace(fourth, PLENTY))

    assert carried(traces, PLENTY) == {first, third}
    assert carried(traces, 250_000) == {first}
    assert carried(traces, 100_000) == frozenset()
    assert carried(traces, -1) == frozenset()


def test_no_detail_of_a_page_goes_for_a_trace() -> None:
    # given: a page that is nearly full, and traces for which its room is too small
    profile = profiles.clean()
    log = LogExcerpt(text="<&>" * 7_000, left_out_bytes=0)
    loud = msgspec.structs.replace(profile, runs=tuple(msgspec.structs.replace(run, log=log) for run in profile.runs))
    alone = Html().render(loud)
    traces = tuple(trace(run.key, 60_000) for run in loud.runs)

    page = Html().with_traces(loud, traces)

    room = MAX_BYTES - len(alone.encode())
    assert 60_000 < room < 6 * 80_000
    assert 1 <= len(page.carried) < 6
    assert len(page.text.encode()) <= MAX_BYTES
    assert page.text.count("&lt;&amp;&gt;" * 7_000) == alone.count("&lt;&amp;&gt;" * 7_000) == 6
    assert page.text.count('class="perfetto"') == len(page.carried)


def test_the_same_traces_give_the_same_bytes() -> None:
    traces = (trace(profiles.EAGER, 1_000),)

    assert Html().with_traces(profiles.clean(), traces) == Html().with_traces(profiles.clean(), traces)


def test_names_of_runs_and_files_are_text() -> None:
    # given: hostile names, and more traces than the page has runs
    key = RunKey(strategy=profiles.HOSTILE[0], mode='"><b>')
    traces = (trace(key, 10), trace(key, PLENTY, link='x"onclick=y'))

    page = Html().with_traces(profiles.clean(), traces).text

    assert "<b>" not in page
    assert "window.pwned=1</script>" not in page
    assert 'x"onclick' not in page


def test_a_page_without_traces_has_no_word_of_them() -> None:
    page = Html().render(profiles.clean())

    assert "The traces themselves" not in page
    assert "A press on Open in Perfetto" not in page
