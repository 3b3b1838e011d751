"""torch writes its skip records while this listens, and the user's log holds no line more."""

from __future__ import annotations

import logging

import pytest
import torch._dynamo

from kgprof.model import Unavailable
from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners import skip_records
from kgprof.record.listeners.skip_records import LOGGERS, SkipRecords


def state() -> list[tuple[int, bool]]:
    return [(logging.getLogger(name).level, logging.getLogger(name).propagate) for name in LOGGERS]


@pytest.mark.parametrize("raises", [False, True])
def test_loggers_that_are_off_are_on_meanwhile(raises: bool) -> None:
    assert torch._dynamo.__name__
    before = state()

    try:
        with listening([SkipRecords()]):
            assert all(logging.getLogger(name).isEnabledFor(logging.DEBUG) for name in LOGGERS)
            assert not any(propagate for _, propagate in state())
            if raises:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert raises

    assert state() == before


def test_a_logger_that_is_on_is_not_touched() -> None:
    logger = logging.getLogger(LOGGERS[0])
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = True
    try:
        with listening([SkipRecords()]):
            assert logger.propagate
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(level)
        logger.propagate = propagate


def test_a_torch_without_the_loggers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_records, "LOGGERS", ("torch._dynamo.no_such.__graph_breaks",))
    source = SkipRecords()

    with listening([source]):
        pass

    assert unavailable([source]) == (
        Unavailable(
            capture="skip records",
            why="this torch has no logger torch._dynamo.no_such.__graph_breaks",
        ),
    )
