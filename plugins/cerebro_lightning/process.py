"""Settings of the process that Lightning and the user's code change: all are put back after a unit."""

from __future__ import annotations

import logging
import re
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only

from cerebro_elastic.extending.parallelism import ranks
from cerebro_elastic.extending.state import rng
from cerebro_elastic.extending.tasks import process_settings

_rank_zero: Any = rank_zero_only
_LOGGERS = ("lightning.pytorch", "lightning.fabric")

_CAUSED_BY_UNITS = (
    r"You defined a `validation_step` but have no `val_dataloader`",
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    r"GPU available but not used",
    r"The '\w+' does not have many workers",
    r"It is recommended to use `self\.log\(.*, sync_dist=True\)`",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r"The `srun` command is available on your system but is not used",
)
"""Warnings caused by training one partition at a time on one device, in a process that cerebro starts, or by
Lightning's own code: a user can do nothing about them."""


@contextmanager
def unit_process(device: torch.device) -> Iterator[None]:
    """Inside the block Lightning is quiet and this process is the unit's rank; at the end random generators
    and all settings of the process are as before."""
    _ignore_warnings()
    rank = _rank_zero.rank
    loggers = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    with process_settings.borrowed():
        try:
            for logger in loggers:
                logger.setLevel(logging.WARNING)
            _rank_zero.rank, _ = ranks()  # the rank in the unit, where a rank of a node may be alone
            with _interruptible(), rng.borrowed(device):
                yield
        finally:
            _rank_zero.rank = rank
            for logger, level in loggers.items():
                logger.setLevel(level)


def _ignore_warnings() -> None:
    """Set the filters once and for good: every change of them makes Python repeat all warnings."""
    known = {pattern.pattern for _, pattern, *_ in warnings.filters if isinstance(pattern, re.Pattern)}
    for message in _CAUSED_BY_UNITS:
        if message not in known:
            warnings.filterwarnings("ignore", message=message)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lightning turns Ctrl-C into ``sys.exit(1)`` and ignores it from then on: turn it back."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as exc:
        if not isinstance(exc.__context__, KeyboardInterrupt):
            raise
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
        raise exc.__context__ from None
