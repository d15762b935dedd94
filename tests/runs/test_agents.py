"""What is said when all nodes have ended."""

from __future__ import annotations

import logging

import pytest

from cerebro_elastic import logs
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.agents import last_words


def test_the_last_words_are_our_own_error_whatever_torchrun_says_after_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("cerebro")
    before = logger.handlers[:], logger.level, logger.propagate
    try:
        logs.start()
        try:
            raise RunError("this node has another version")
        except RunError:
            logs.EventLog(node="n").exception("this machine cannot be a node of the run")
        logs.EventLog(node="n").info("bye")
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    log = capsys.readouterr().err + "Traceback (most recent call last):\n  SignalException: got signal: 15\n"
    expected = (
        "this machine cannot be a node of the run: cerebro_elastic.errors.RunError: this node has another"
    )
    assert last_words(log).startswith(expected)


def test_without_one_they_are_the_last_lines() -> None:
    log = "\n".join(["null", "3", "{}", *(f"line {i}" for i in range(30))])
    assert last_words(log).splitlines() == [f"line {i}" for i in range(15, 30)]
    assert last_words("") == ""
