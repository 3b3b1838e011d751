"""Messages about CUDA graphs, with the function that logged them; loggers are left as they were."""

from __future__ import annotations

import logging

import pytest
from torch._inductor import cudagraph_trees, cudagraph_utils

from kgprof.model.compile_records import LogLine
from kgprof.record.ground.source import listening
from kgprof.record.listeners import cuda_graph_log
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.cuda_graph_log import LOGGERS, CudaGraphLog


def state() -> list[tuple[int, bool, list[logging.Handler], list[object]]]:
    loggers = map(logging.getLogger, LOGGERS)
    return [
        (logger.level, logger.propagate, list(logger.handlers), list(logger.filters))
        for logger in loggers
    ]


def test_a_skip_is_known_by_the_function_that_logs_it() -> None:
    index = CallIndex()
    source = CudaGraphLog(index)

    with listening([source]), index.call():
        cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to a test")

    assert source.messages == [
        LogLine(
            call=0,
            logger="torch._inductor.cudagraph_utils.__cudagraphs",
            level="WARNING",
            function="log_cudagraph_skip_and_bump_counter",
            compile_id="",
            text="skipping cudagraphs due to a test",
        )
    ]
    assert [list(line) for line in source.lines()] == [["log"]]


def test_messages_of_every_level_are_heard_whatever_the_users_log_shows() -> None:
    source = CudaGraphLog(CallIndex())

    with listening([source]):
        logging.getLogger(LOGGERS[0]).debug("[%s] Recording", "0/0")

    assert [(message.level, message.text) for message in source.messages] == [
        ("DEBUG", "[0/0] Recording")
    ]


def test_the_users_log_shows_what_it_showed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = logging.getLogger(LOGGERS[0])
    heard: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: heard.append(record.getMessage()))
    monkeypatch.setattr(shown, "handlers", [handler])
    monkeypatch.setattr(shown, "level", logging.WARNING)

    with listening([CudaGraphLog(CallIndex())]):
        shown.debug("recording")
        shown.warning("skipping")

    assert heard == ["skipping"]


def test_messages_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph_log, "ROWS", 1)
    source = CudaGraphLog(CallIndex())

    with listening([source]):
        for number in range(3):
            logging.getLogger(LOGGERS[1]).info("message %d", number)

    assert [list(line) for line in source.lines()] == [["log"], ["left_out", "limit_rows"]]
    assert source.left_out == 2


@pytest.mark.parametrize("raises", [False, True])
def test_the_loggers_are_left_as_they_were(raises: bool) -> None:
    before = state()

    try:
        with listening([CudaGraphLog(CallIndex())]):
            assert all(logging.getLogger(name).isEnabledFor(logging.DEBUG) for name in LOGGERS)
            if raises:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert raises

    assert state() == before


def test_a_reason_that_torch_cannot_compute_ends_no_program() -> None:
    """Inputs of a partitioned graph are not those that were recorded: torch asserts it for the log
    alone, where the graph is recorded again."""
    changed = cudagraph_utils.CheckInvariantStatus.StaticInputIdxMismatch
    before = cudagraph_trees.log_data_ptr_mismatch

    with listening([CudaGraphLog(CallIndex())]):
        reason = cudagraph_trees.log_data_ptr_mismatch([], [None], [1, 2], [0], changed)

    assert reason == "static input data pointer changed."
    assert cudagraph_trees.log_data_ptr_mismatch is before
    with pytest.raises(AssertionError):
        before([], [None], [1, 2], [0], changed)
