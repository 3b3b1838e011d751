"""What processes that run tests, and those from which others are forked, do before.

They compile without torch's measurement of how long its guards take. Torch takes it after each
compile, and writes over the processor's caches before: 20 ms, for a number that no report of
kgprof's has.
"""

import sys

# for a process that has no tests
CODE = "import torch._dynamo.guards as _guards; _guards.profile_guard_manager = lambda *_: 0.0; "


# What torch imports where something is first compiled: half a second with backend="eager", 1.8 s
# with "aot_eager". Processes are forked from one that has it. compile_fx, which makes a process one
# with Inductor, is not among it.
FIRST_COMPILE = ("torch._dynamo.backends.debugging", "torch._inductor.lowering")


def keep() -> None:
    """From now on in this process, where torch can compile."""
    if "torch._dynamo.guards" in sys.modules:
        exec(CODE, {})
