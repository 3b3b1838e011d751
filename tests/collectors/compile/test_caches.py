"""KGP106: hits, misses and bypasses of the compile caches, and what a bypass costs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from kgprof.collectors.compile import caches
from kgprof.collectors.compile.caches import CacheUse
from kgprof.model import CacheTally, Finding, Level
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED
from tests.collectors import written
from tests.collectors.written import (
    CALLER,
    FILE,
    LIBRARY,
    REPORT,
    STEP,
    STEP_DEF,
    artifact,
    compiled,
)

STEPS_DEF = written.place(FILE, STEP_DEF, "step")
COND = json.dumps({"cache_bypass_reason": "Can't cache HigherOrderOperator: cond"})
COND_TOO = json.dumps(
    {"cache_bypass_reason": "Unsupported call_function target cond. \n Function name: cond"}
)


def collected(*lines: Any) -> tuple[CacheUse, ...]:
    return caches.collect(Evidence(written.recording(*lines)))


def test_each_look_into_a_cache_is_an_event() -> None:
    found = collected(
        *compiled("0/0", STEP),
        artifact("fx_graph_cache_miss", "0/0", '{"key": "f...", "components": ["cut off here'),
        artifact("aotautograd_cache_hit", "0/0", "{}"),
        artifact("fx_graph_cache_bypass", "0/0", COND, call=2),
    )

    assert [(use.cache, use.outcome, use.reason) for use in found] == [
        ("FX graph cache", "miss", ""),
        ("FX graph cache", "bypass", "Can't cache HigherOrderOperator: cond"),
        ("AOTAutograd cache", "hit", ""),
    ]
    assert {(use.run, use.location, use.compile_id) for use in found} == {(FUSED, STEPS_DEF, "0/0")}


def test_looks_are_counted_by_cache_and_outcome() -> None:
    found = collected(
        *compiled("0/0", STEP),
        artifact("fx_graph_cache_miss", "0/0", "{}"),
        artifact("fx_graph_cache_miss", "0/0", "{}"),
        artifact("aotautograd_cache_bypass", "0/0", COND),
    )

    assert caches.tallies(found, FUSED) == (
        CacheTally(cache="FX graph cache", hits=0, misses=2, bypasses=0),
        CacheTally(cache="AOTAutograd cache", hits=0, misses=0, bypasses=1),
    )


def test_a_bypass_is_one_finding_a_function_for_all_caches() -> None:
    (found,) = caches.diagnose(
        collected(
            *compiled("0/0", STEP),
            artifact("aotautograd_cache_bypass", "0/0", COND_TOO),
            artifact("fx_graph_cache_bypass", "0/0", COND),
        )
    )

    assert found == Finding(
        rule="KGP106",
        level=Level.WARNING,
        message=(
            "Model.step is recompiled in every process: FX graph cache and AOTAutograd cache "
            "bypassed (Can't cache HigherOrderOperator: cond)"
        ),
        run=FUSED,
        location=STEPS_DEF,
        count=1,
        detail=(
            "FX graph cache, 0/0: Can't cache HigherOrderOperator: cond\n"
            "AOTAutograd cache, 0/0: Unsupported call_function target cond. Function name: cond"
        ),
        no_fix=caches.CONTROL_FLOW,
        fingerprint=found.fingerprint,
    )


@pytest.mark.parametrize(
    ("reason", "no_fix"),
    [
        ("Unsupported call_function target cond.", caches.CONTROL_FLOW),
        ("Unsupported post grad custom pass", caches.CUSTOM_PASS),
        ("Won't cache a graph with fakify_first_call enabled", ""),
        ("Unsupported call_function target ScaledMMConfig.", ""),
    ],
)
def test_what_to_do_is_said_of_the_reason_alone(reason: str, no_fix: str) -> None:
    refused = artifact("fx_graph_cache_bypass", "0/0", json.dumps({"cache_bypass_reason": reason}))

    (found,) = caches.diagnose(collected(*compiled("0/0", STEP), refused))

    assert found.no_fix == no_fix
    assert "CustomGraphPass" not in caches.CACHE_BYPASSED.remedy


def test_two_functions_are_two_findings() -> None:
    found = caches.diagnose(
        collected(
            *compiled("0/0", STEP),
            artifact("fx_graph_cache_bypass", "0/0", COND),
            *compiled("1/0", REPORT),
            artifact("fx_graph_cache_bypass", "1/0", COND),
        )
    )

    assert [finding.location for finding in found] == [STEPS_DEF, written.place(FILE, 4, "report")]
    assert len({finding.fingerprint for finding in found}) == 2


def test_hits_and_misses_are_no_findings() -> None:
    found = collected(*compiled("0/0", STEP), artifact("fx_graph_cache_miss", "0/0", "{}"))

    assert caches.diagnose(found) == ()


def test_a_bypass_that_cannot_be_read_is_still_one() -> None:
    (found,) = collected(*compiled("0/0", STEP), artifact("fx_graph_cache_bypass", "0/0", '{"cut'))

    assert found.reason == "torch's record could not be read"


def test_where_only_aotautograd_s_cache_refuses_the_graph_is_traced_again_and_not_compiled() -> (
    None
):
    told = {
        "cache_bypass_reason": (
            "Unsupported call_function target <function where at 0x7f2f93282840>."
        )
    }
    refused = artifact("aotautograd_cache_bypass", "0/0", json.dumps(told))
    (found,) = caches.diagnose(
        collected(*compiled("0/0", STEP), refused, artifact("fx_graph_cache_miss", "0/0", "{}"))
    )

    assert found.message == (
        "Model.step is traced by AOTAutograd again in every process: AOTAutograd cache bypassed "
        "(Unsupported call_function target <function where>.)"
    )


def test_autocast_that_is_entered_in_the_graph_is_entered_around_it() -> None:
    told = {"cache_bypass_reason": "Unsupported call_function target <function _enter_autocast>."}
    refused = artifact("aotautograd_cache_bypass", "0/0", json.dumps(told))

    (found,) = caches.diagnose(collected(*compiled("0/0", STEP), refused))

    assert found.fix == caches.AUTOCAST_AROUND


def test_an_autograd_function_is_no_librarys_reason() -> None:
    reason = {"cache_bypass_reason": "Unsupported call_function target autograd_function_apply"}
    lines = compiled("0/0", (LIBRARY, 67, "inner"))
    (found,) = caches.diagnose(
        collected(*lines, artifact("aotautograd_cache_bypass", "0/0", json.dumps(reason)))
    )

    assert (found.fix, found.no_fix) == (caches.FUNCTIONS_TOO, "")


def test_a_librarys_function_is_named_where_it_stands_and_is_a_note() -> None:
    frames = [(LIBRARY, 50, "forward"), (LIBRARY, 90, "reset")]
    custom = json.dumps({"cache_bypass_reason": "Unsupported post grad custom pass"})
    found = caches.diagnose(
        collected(
            *(
                line
                for number, frame in enumerate(frames)
                for line in compiled(f"{number}/0", frame)
            ),
            *(artifact("fx_graph_cache_bypass", f"{number}/0", custom) for number in range(2)),
        )
    )

    place = (written.place(*CALLER), Level.NOTE, True)
    assert [(each.location, each.level, bool(each.no_fix)) for each in found] == [place] * 2
    assert [(each.library.line, each.library.function) for each in found if each.library] == [
        (50, "forward"),
        (90, "reset"),
    ]
    assert found[0].message.startswith(
        "forward in torch nn/modules/activation.py:50 is recompiled in every process"
    )
    assert len({each.fingerprint for each in found}) == 2


def test_the_setting_can_be_written_where_torch_alone_was_imported() -> None:
    code = caches.FUNCTIONS_TOO.partition("  #")[0]

    subprocess.run([sys.executable, "-c", f"import torch; {code}"], check=True)
