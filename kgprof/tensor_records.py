"""What the tensor probe of the MEMORY pass wrote down about addresses, aliases and versions, before anyone has made
sense of it.

``call`` counts the calls of the workload in this pass from 0; -1 stands for anything before the first.
"""

from __future__ import annotations

import msgspec


class TensorRecords(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="tensors"):
    """All of one MEMORY pass."""
