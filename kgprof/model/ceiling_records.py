"""What a card was measured to do at most: ``ceilings.json`` of a Recording."""

from __future__ import annotations

import msgspec

COPY = "copy"
MATMUL = "matmul"


class CeilingSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one operation, one for each time that it was timed. ``how`` says what was run, with its sizes."""

    operation: str  # COPY or MATMUL
    dtype: str  # of the matmul: "float64", "float32", "tf32", "bfloat16", "float16"; empty for the copy
    unit: str  # "bytes/s", read and written both counted; "FLOP/s", a multiplication and an addition counted as two
    per_s: tuple[float, ...]
    how: str


class Ceilings(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ceilings"):
    """Measured in a process of its own, when nothing else of the Recording ran."""

    device_name: str
    measured: tuple[CeilingSamples, ...]
    unavailable: tuple[str, ...] = ()  # "matmul in float64: why"
