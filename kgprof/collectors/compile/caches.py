"""KGP106: what each compilation found in Inductor's and AOTAutograd's caches on disk, and what
cannot be cached."""

import itertools
import re

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import library_function, place_of
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped
from kgprof.reading.evidence import Evidence
from kgprof.reading.files import json_object
from kgprof.reading.structured_trace import compile_id

CACHE_BYPASSED = m.Rule(
    id="KGP106",
    name="compile-cache-bypassed",
    level=m.Level.WARNING,
    summary="torch cannot cache this graph, so every process recompiles it.",
    why=(
        "Inductor and AOTAutograd keep what they generate on disk, and the next process starts in "
        "a fraction of the time. A graph with an operator that torch cannot cache (torch.cond is "
        "one, in torch 2.11 to 2.15) is never looked up and never stored, so each start of the "
        "program pays the full compile time. So is a graph that is compiled with a custom pass of "
        "Inductor that has no uuid()."
    ),
    example="torch.cond(mask.any(), expand, keep, (state,)) inside the compiled step.",
    remedy=(
        "The finding gives torch's reason. If it is an operator, compile what is before and behind "
        "it apart, so that this is cached (a compiled function that a compiled one calls is a part "
        "of its graph). If it is an option, each process compiles this graph while that is set."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE, m.Witness.GENERATED_CODE),),
    can_cost=(),
)
RULES = (CACHE_BYPASSED,)
CONTROL_FLOW = (
    "an operator of control flow: express it with others that can be cached (cond: torch.where "
    "over both results), or compile what is before and behind it apart"
)
CUSTOM_PASS = (
    "a custom pass of Inductor: make it a torch._inductor.custom_graph_pass.CustomGraphPass with a "
    "uuid()"
)
AUTOCAST_AROUND = (
    "with torch.autocast(...):  # around the call of the compiled function, and no longer in it; "
    "not tried"
)
OF_A_LIBRARY = (
    "it is a library's function, and so is what keeps it from being cached, "
    "unless you set passes of Inductor"
)
FUNCTIONS_TOO = (
    "import torch._functorch.config; "
    "torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True  # torch then "
    "no longer refuses graphs because of a torch.autograd.Function; other reasons may be left; "
    "not tried"
)

# Artifact names of torch.__trace: what they are called here, and the cache.
_CACHES = {"fx_graph_cache": "FX graph cache", "aotautograd_cache": "AOTAutograd cache"}
_OUTCOMES = ("hit", "miss", "bypass")
_ENTERS_AUTOCAST = "_enter_autocast"  # torch's function for a with block in the graph
_IS_CONTROL_FLOW = re.compile(r"\b(?:cond|while_loop|scan)\b")
_CALLS_A_FUNCTION = "autograd_function_apply"  # torch's operator for a torch.autograd.Function
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function, another one in each process


class CacheUse(Event):
    """One look into one cache by one compilation (a graph's backward looks for itself)."""

    compile_id: str
    # the def of the compiled function; of a library's the line that leads there
    library: m.PackageLine | None = None  # the def of a library's function
    cache: str  # "FX graph cache", "AOTAutograd cache"
    outcome: str  # hit, miss, bypass
    reason: str  # of a bypass, torch's own words


def collect(evidence: Evidence) -> tuple[CacheUse, ...]:
    uses = []
    for trace, (prefix, cache), outcome in itertools.product(
        evidence.compilers, _CACHES.items(), _OUTCOMES
    ):
        for record in trace.artifacts(f"{prefix}_{outcome}"):
            name = compile_id(record.metadata)
            location = library = None
            if compiled := trace.compilation(name, record.call):
                location = place_of(trace, compiled)
                library = library_function(trace, compiled)
            identity = trace.source.identity(location)[:2]
            if library is not None:
                identity = (*identity, library.package, library.file, library.function)
            reason = ""
            if outcome == "bypass":
                reason = _reason(record.payload)
            uses.append(
                CacheUse(
                    run=trace.run,
                    compile_id=name,
                    location=location,
                    library=library,
                    cache=cache,
                    outcome=outcome,
                    reason=reason,
                    identity="\0".join(identity),
                )
            )
    return tuple(uses)


def tallies(events: tuple[CacheUse, ...], run: m.RunKey) -> tuple[m.CacheTally, ...]:
    """Of one run, a row for each cache."""
    outcomes = {
        cache: [use.outcome for use in events if (use.run, use.cache) == (run, cache)]
        for cache in _CACHES.values()
    }
    return tuple(
        m.CacheTally(cache, of.count("hit"), of.count("miss"), of.count("bypass"))
        for cache, of in outcomes.items()
    )


def _reason(payload: str | None) -> str:
    """A miss carries its whole key and may have been cut; a bypass is short and whole."""
    decoded = json_object(payload or "{}")
    if payload and not decoded:
        return "torch's record could not be read"
    return _ADDRESS.sub(
        "", " ".join(str(decoded.get("cache_bypass_reason") or "torch gave no reason").split())
    )


def _fix(use: CacheUse) -> str:
    if _CALLS_A_FUNCTION in use.reason:
        return FUNCTIONS_TOO
    if _ENTERS_AUTOCAST in use.reason and not use.library:
        return AUTOCAST_AROUND
    return ""


def _why_no_code(use: CacheUse) -> str:
    if use.library:
        return OF_A_LIBRARY
    if _IS_CONTROL_FLOW.search(use.reason):
        return CONTROL_FLOW
    if "custom pass" in use.reason:
        return CUSTOM_PASS
    return ""


def diagnose(events: tuple[CacheUse, ...]) -> tuple[m.Finding, ...]:
    """One finding a function, for all the caches that refused it."""
    findings = []
    refused = (use for use in events if use.outcome == "bypass")
    for first, *more in grouped(refused, lambda use: (use.run, use.identity)):
        uses = (first, *more)
        caches = " and ".join(dict.fromkeys(use.cache for use in uses))
        name = "a graph"
        if first.library is not None:
            name = f"{first.library.function} in {first.library}"
        elif first.location is not None:
            name = first.location.function
        fix = _fix(first)
        no_fix = ""
        if not fix:
            no_fix = _why_no_code(first)
        # What Inductor generated has a cache of its own, behind that of AOTAutograd.
        again = "traced by AOTAutograd again"
        if _CACHES["fx_graph_cache"] in caches:
            again = "recompiled"
        findings.append(
            finding(
                CACHE_BYPASSED,
                first,
                f"{name} is {again} in every process: {caches} bypassed ({first.reason})",
                first.identity,
                is_note=first.library is not None,
                no_fix=no_fix,
                fix=fix,
                library=first.library,
                count=len({use.compile_id for use in uses}),
                detail="\n".join(f"{use.cache}, {use.compile_id}: {use.reason}" for use in uses),
            )
        )
    return tuple(findings)
