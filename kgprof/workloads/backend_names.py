"""The backends that ``--backend`` knows; free of torch, for the command line."""

from __future__ import annotations

BACKENDS = ("inductor", "aot_eager", "eager")
