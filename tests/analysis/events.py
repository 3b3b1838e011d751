"""Kineto events as a trace holds them: microseconds with three decimals."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def event(
    category: str,
    name: str,
    start_us: float,
    duration_us: float,
    *,
    thread: int = 1,
    stream: int | None = None,
) -> dict[str, Any]:
    arguments = {} if stream is None else {"stream": stream, "correlation": 7}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start_us,
        "dur": duration_us,
        "args": arguments,
    }


def step(number: int, start_us: float, duration_us: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{number}", start_us, duration_us)


def write(path: Path, events: Iterable[dict[str, Any]], *, packed: bool = False) -> Path:
    data = json.dumps({"schemaVersion": 1, "traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    return path
