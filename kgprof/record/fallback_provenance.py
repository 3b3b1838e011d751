"""Calls of ATen in generated code whose provenance Inductor does not write down: scatters and indexed writes in place.

Inductor notes where a kernel came from in the ``codegen`` of its nodes, and the nodes of these operators have one of
their own that does not. Each call for which nothing was noted is noted here, by Inductor's own function, so that it
stands in the same artifact.
"""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from typing import Any

from kgprof.record.source import Source, replace

HANDLE = "_inductor_kernel_provenance_debug_handle"  # counts what was noted


class FallbackProvenance(Source):
    """While entered, no call of an ATen operator in generated code is left without its origin."""

    def listen(self, undo: ExitStack) -> None:
        try:
            debug = importlib.import_module("torch._inductor.debug")
            scheduler = importlib.import_module("torch._inductor.scheduler").Scheduler
            original = scheduler.codegen_extern_call
            getattr(debug, HANDLE)
        except (ImportError, AttributeError) as error:
            self.unavailable = f"this torch does not say what it leaves out of the provenance of kernels ({error})"
            return

        def watched(this: Any, scheduler_node: Any) -> Any:
            before = getattr(debug, HANDLE)
            result = original(this, scheduler_node)
            node = getattr(scheduler_node, "node", None)
            name = getattr(node, "python_kernel_name", None)
            if getattr(debug, HANDLE) == before and isinstance(name, str) and name.startswith(("aten.", "torch.ops.")):
                debug.set_kernel_post_grad_provenance_tracing(node, name, is_extern=True)
            return result

        replace(scheduler, "codegen_extern_call", watched, undo)
