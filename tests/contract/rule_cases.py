"""One case a rule: what it finds and what it does not, on a Recording written by hand and on a real
one."""

from __future__ import annotations

from dataclasses import dataclass

from kgprof.model import Recording
from tests.analysis.recordings import (
    COMPILED,
    EAGER,
    FUSED,
    agreed,
    agreement,
    died,
    recording,
    run,
)
from tests.collectors import (
    written,
    written_device,
    written_gpu_time,
    written_syncs,
    written_tensors,
)

CLEAN = recording(
    run(EAGER),
    written.run(*written.compiled_once()),
    agreement=agreement(agreed(EAGER), agreed(FUSED)),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """``written`` shows the rule and CLEAN does not; likewise of two real programs ``dirty`` and
    ``clean``: of either corpus, runs of cuda_graphs_h200, or "strategy.mode" of linkpred_h200. Both
    are empty where no such run is kept."""

    written: Recording
    dirty: str = ""
    clean: str = ""


# A new rule has its line here, and nowhere else in this suite.
CASES: dict[str, Case] = {
    "KGP101": Case(
        written=written.recording(*written.a_break()),
        dirty="print_between_ops",
        clean="print_when_not_compiling",
    ),
    "KGP102": Case(
        written=written.recording(*written.a_skipped_frame()),
        dirty="break_in_loop",
        clean="two_breaks",
    ),
    "KGP103": Case(
        written=written.recording(*written.recompiled(10)),
        dirty="dtype_changes",
        clean="two_equal_models",
    ),
    "KGP104": Case(
        written=written.recording(
            *written.to_the_limit(2, 4, 6, 8, limit=10, reason="len(xs) == 2")
        ),
        dirty="size_changes_every_other_call",
        clean="size_dynamic",
    ),
    "KGP105": Case(
        written=written.recording(
            *written.to_the_limit(1, 2, 3, 4, limit=5, reason="G['TALLY'] == 1")
        ),
        dirty="module_counts_calls",
        clean="size_changes_every_other_call",
    ),
    "KGP106": Case(
        written=written.recording(*written.a_bypass()), dirty="cond", clean="normalised"
    ),
    "KGP107": Case(
        written=written.recording(*written.a_failure()),
        dirty="fullgraph_refused",
        clean="break_in_loop",
    ),
    "KGP108": Case(written=written.recording(*written.a_stance())),
    "KGP201": Case(written=written_syncs.a_read(), dirty="read_item", clean="shape_questions"),
    "KGP202": Case(
        written=written_syncs.a_read_predicate(), dirty="cond_predicate", clean="where_in_compiled"
    ),
    "KGP203": Case(written=written_syncs.a_copy_that_costs_nothing_here()),
    "KGP204": Case(written=written_syncs.a_wait_for_a_clock()),
    "KGP301": Case(
        written=written.on_cuda(
            *written.compiled_once(), written.skipped_graph("mutated inputs", written.LOOP)
        ),
        dirty="buffer_written",
        clean="normalised",
    ),
    "KGP302": Case(
        written=written.on_cuda(
            *written.compiled_once(), *written.partitioned("cpu ops", written.LOOP)
        ),
        dirty="scalar_on_cpu",
        clean="normalised",
    ),
    "KGP303": Case(
        written=written.on_cuda(*written.compiled_once(), launches=0),
        dirty="cond",
        clean="normalised",
    ),
    "KGP304": Case(
        written=written.on_cuda(*written.a_rerecording(), launches=4),
        dirty="parameter_moved",
        clean="normalised",
    ),
    "KGP305": Case(
        written=written_tensors.a_copied_input(),
        dirty="replay_copies_input",
        clean="replay_of_static_input",
    ),
    "KGP306": Case(written=written_syncs.a_wrong_graph("rebound")),
    "KGP307": Case(written=written_syncs.a_wrong_graph("kept")),
    "KGP308": Case(written=written_syncs.captured_in_each_step()),
    "KGP401": Case(
        written=written_tensors.a_moving_input(), dirty="loop_carried_state", clean="view_made_anew"
    ),
    "KGP402": Case(
        written=written_tensors.a_returned_input(),
        dirty="returns_view_of_input",
        clean="same_shape_output",
    ),
    "KGP403": Case(
        written=written_tensors.two_results_of_one(),
        dirty="result_and_its_view",
        clean="halves_of_result",
    ),
    "KGP404": Case(
        written=written_tensors.a_written_argument(),
        dirty="argument_assigned_by_index",
        clean="locals_written",
    ),
    "KGP405": Case(
        written=written_tensors.a_written_window(), dirty="inputs_overlap", clean="rows_interleaved"
    ),
    "KGP406": Case(
        written=written_tensors.a_refused_branch(),
        dirty="cond_returns_operand",
        clean="cond_returns_clones",
    ),
    "KGP501": Case(
        written=recording(
            run(EAGER),
            run(FUSED),
            agreement=agreement(agreed(EAGER), agreed(FUSED, "different", differing=3)),
        )
    ),
    "KGP502": Case(written=recording(run(EAGER), run(FUSED, unfinished=7))),
    "KGP503": Case(written=written.recording(*written.a_contradiction())),
    "KGP504": Case(written=recording(died(EAGER), died(FUSED))),
    "KGP601": Case(
        written=written_device.steps(step_us=400.0, kernels=4, kernel_us=5.0),
        dirty="item_read",
        clean="normalised",
    ),
    "KGP602": Case(
        written=written_device.steps(step_us=400.0, kernels=40, kernel_us=2.0, in_operators=0.9),
        dirty="batched.default",
        clean="batched.reduce-overhead",
    ),
    "KGP604": Case(written=written_gpu_time.exact_float32(), dirty="exact_float32", clean="tf32"),
    "KGP605": Case(
        written=written_gpu_time.math_attention(), dirty="math_attention", clean="fused_attention"
    ),
    "KGP606": Case(written=written_gpu_time.only_tf32()),
    "KGP607": Case(
        written=written_gpu_time.slow_loader(), dirty="loaded_in_the_step", clean="normalised"
    ),
    "KGP608": Case(written=written_gpu_time.pageable_copy(), dirty="pageable", clean="pinned"),
    "KGP609": Case(
        written=written_gpu_time.unfused_optimizer(), dirty="adamw", clean="adamw_fused"
    ),
    "KGP610": Case(
        written=written_gpu_time.small_graphs(),
        dirty="graph_for_each_layer",
        clean="graph_for_all_layers",
    ),
    "KGP611": Case(written=written_gpu_time.own_kernel()),
    "KGP612": Case(written=written_gpu_time.sampled()),
    "KGP613": Case(written=written_gpu_time.slow_operator()),
    "KGP614": Case(written=written_gpu_time.loaded_on_a_cpu(0.5)),
    "KGP603": Case(written=recording(run(EAGER), run(COMPILED, evaluation_s=0.9))),
    "KGP701": Case(written=written.recording(*written.an_unrolled_loop())),
}
