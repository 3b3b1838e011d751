"""Which records of torch.__trace a Recording keeps, how long they may be, and how they are written
down.

They come from the logger itself (record.passes.torch_trace) or from the files of a TORCH_TRACE
directory (record.files.torch_trace_files). Torch-free: files are read where there is no torch.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgprof import model as m
from kgprof.reading.files import json_object
from kgprof.reading.structured_trace import SPECIALIZED, artifact_name, compile_id
from kgprof.record.ground import store

RECORDS_BYTES = 16 * 2**20  # of JSON, before compression; what comes after it is counted

TEXT_CHARACTERS = 512 * 1024  # of one graph or its code
TEXTS_CHARACTERS = 8 * 2**20  # of all of them
TEXTS = {"dynamo_output_graph": m.GRAPH, "inductor_output_code": m.CODE}

# What else is kept of torch.__trace. The rest (other forms of the graphs, chromium events) is 30
# times as much.
KEPT_RECORDS = frozenset(
    (
        "str",  # file names in stacks are numbers that these explain
        "dynamo_start",
        "create_symbol",
        "link",
        SPECIALIZED,
        "compilation_metrics",
        "bwd_compilation_metrics",
        "aot_autograd_backward_compilation_metrics",
        "describe_storage",
        "describe_tensor",
        "describe_source",
    )
)
KEPT_ARTIFACTS = frozenset(
    (
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "fx_graph_cache_hit",
        "fx_graph_cache_miss",
        "fx_graph_cache_bypass",
        "aotautograd_cache_hit",
        "aotautograd_cache_miss",
        "aotautograd_cache_bypass",
        "aot_forward_graph_fw_metadata",
        "cudagraph_skip_reason",
    )
)
# The spans in chromium_event records that tell the stages of a compilation apart.
KEPT_SPANS = frozenset(
    (
        "dynamo",
        "entire_frame_compile",
        "backend_compile",
        "entire_backward_compile",
        "create_aot_dispatcher_function",
        "inductor_compile",
        "_recursive_post_grad_passes",
        "Scheduler.__init__",
        "code_gen",
        "GraphLowering.compile_to_fn",
        "async_compile.wait",
        "async_compile.precompile",
        "compile_file",
        "inductor_codecache_torch_key",
        "CacheBase.get_system.triton_key",
        "PyCodeCache.load_by_key_path",
        "AOTAutogradCache.inductor_load",
        "TritonBundler.collect",
        "TritonBundler.read_and_emit",
    )
)
# the names of all of them
WANTED = frozenset(("chromium_event", *KEPT_RECORDS, *KEPT_ARTIFACTS, *TEXTS))
PAYLOAD_BYTES = 64 * 1024  # of one record
KEY_BYTES = 2 * 1024  # of a cache miss, which carries its whole key: 70 KB a graph
# 38 KB of settings stand in every metrics record; once is enough.
SETTINGS = ("dynamo_config", "inductor_config", "functorch_config", "compiler_config")

Metadata = Mapping[str, Any]
Lines = Iterator[dict[str, Any]]


def is_kept(metadata: Metadata, payload: str | None) -> bool:
    if not KEPT_RECORDS.isdisjoint(metadata):
        return True
    if "chromium_event" in metadata:
        # Found in the text: the payload is JSON that is made for every span and needed of few.
        return (payload or "").partition('"name": "')[2].partition('"')[0] in KEPT_SPANS
    return artifact_name(metadata) in KEPT_ARTIFACTS


@dataclass(kw_only=True)
class KeptRecords:
    """Records of torch.__trace up to RECORDS_BYTES; ``left_out`` counts those beyond it."""

    records: list[m.TraceRecord] = field(default_factory=list)
    texts: list[m.CompiledText] = field(default_factory=list)
    left_out: int = 0
    size_bytes: int = 0

    def keep(self, metadata: dict[str, Any], payload: str | None, call: int) -> None:
        if payload and (what := next((TEXTS[name] for name in TEXTS if name in metadata), "")):
            room = TEXTS_CHARACTERS - sum(len(each.text) for each in self.texts)
            text = payload[: min(TEXT_CHARACTERS, room)]
            name = compile_id(metadata)
            cut = len(payload) - len(text)
            self.texts.append(m.CompiledText(name, what, text, cut, call))
        if not is_kept(metadata, payload):
            return
        size = len(payload or "") + 200
        if self.size_bytes + size > RECORDS_BYTES:
            self.left_out += 1
            return
        self.size_bytes += size
        self.records.append(m.TraceRecord(metadata, payload, call))


def write_records(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, gzipped; which keys a line has tells its source
    (kgprof.model.compile_records)."""
    # gzip.open would ask for the builtin open, which a program may have taken away.
    with (
        store.replacing(path) as partial,
        partial.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb") as packed,
    ):
        for line in lines:
            packed.write((json.dumps(line, default=str) + "\n").encode())


def as_lines(records: Iterable[m.TraceRecord], *, left_out: int = 0) -> Lines:
    """For the file of records, cut to their limits; ``left_out`` counts those that were not kept
    for want of room."""
    settings_seen = False
    for record in records:
        metadata = record.metadata
        payload = record.payload
        if payload and "chromium_event" in metadata:
            # When it began or ended and what it belongs to. The rest, a whole pass's settings at
            # times, is cut: a payload that is longer than PAYLOAD_BYTES would be JSON no more.
            span = json_object(payload)
            slim = {name: span.get(name) for name in ("name", "ph", "ts")}
            args = span.get("args")
            compile_id = args.get("compile_id") if isinstance(args, dict) else None
            payload = json.dumps({**slim, "args": {"compile_id": compile_id}})
        is_a_miss = artifact_name(metadata).endswith("_cache_miss")
        limit = KEY_BYTES if is_a_miss else PAYLOAD_BYTES
        cut = max(0, len(payload or "") - limit)
        line: dict[str, Any] = {
            "call": record.call,
            "metadata": dict(metadata),
            "payload": payload and payload[:limit],
        }
        if cut:
            line["payload_cut"] = cut
        if isinstance(made := metadata.get(SPECIALIZED), dict):
            kept = ("sources", "value", "user_stack")  # torch's own stack is 100 lines
            line["metadata"][SPECIALIZED] = {key: made.get(key) for key in kept}
        if isinstance(metrics := metadata.get("compilation_metrics"), dict):
            if settings_seen:
                line["metadata"]["compilation_metrics"] = {
                    k: v for k, v in metrics.items() if k not in SETTINGS
                }
            settings_seen = True
        yield line
    if left_out:
        yield {"left_out": left_out, "limit_bytes": RECORDS_BYTES}


def compilations(records: Iterable[m.TraceRecord]) -> Iterable[m.Compilation]:
    """A row for each compilation_metrics record, in torch's order."""
    for record in records:
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            if isinstance(metrics := record.metadata.get(name), dict):
                file = metrics.get("co_filename")
                duration_us = metrics.get("duration_us")
                unknown = m.Skipped("torch gave no duration_us")
                yield m.Compilation(
                    compile_id=str(metrics.get("compile_id") or ""),
                    function=str(
                        metrics.get("co_name") or ("(backward)" if name.startswith("bwd") else "")
                    ),
                    location=f"{file}:{metrics.get('co_firstlineno')}" if file else "",
                    duration_s=unknown if duration_us is None else duration_us / 1e6,
                    fail_reason=str(metrics.get("fail_reason") or metrics.get("fail_type") or ""),
                )
