"""Compiles without torch's measurement of how long its guards take.

Torch takes it after each compile, and writes over the processor's caches before: 20 ms, for a
number that no report of kgprof's has.
"""

import sys

# for a process that has no tests
CODE = "import torch._dynamo.guards as _guards; _guards.profile_guard_manager = lambda *_: 0.0; "


def keep() -> None:
    """From now on in this process, where torch can compile."""
    if "torch._dynamo.guards" in sys.modules:
        exec(CODE, {})
