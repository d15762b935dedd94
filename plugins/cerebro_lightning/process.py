"""What Lightning and the user change in the process: all of it is put back after a unit."""

from __future__ import annotations

import logging
import os
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
from cerebro_elastic.extending.tasks import process_settings
from cerebro_elastic.extending.torch_tasks import rng

_VARIABLES = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "CUBLAS_WORKSPACE_CONFIG")
_rank_zero: Any = rank_zero_only
_LOGGERS = ("lightning.pytorch", "lightning.fabric")

_CAUSED_BY_UNITS = (
    r"You defined a `validation_step` but have no `val_dataloader`",
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    r"GPU available but not used",
    r"It is recommended to use `self\.log\(.*, sync_dist=True\)`",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
)
"""Warnings that come of one partition at a time on one device, or of Lightning's own code: a user can do
nothing about them."""


@contextmanager
def unit_process(device: torch.device) -> Iterator[None]:
    """Lightning quiet, this process the rank that it is in the unit; random generators and all settings of
    the process as before at the end."""
    _ignore_warnings()
    rank = _rank_zero.rank
    with process_settings.borrowed(), _own_variables():
        try:
            for name in _LOGGERS:
                logging.getLogger(name).setLevel(logging.WARNING)
            _rank_zero.rank, _ = ranks()  # of the unit's: a rank of a node may be on its own in it
            with _interruptible(), rng.borrowed(device):
                yield
        finally:
            _rank_zero.rank = rank


@contextmanager
def _own_variables() -> Iterator[None]:
    """Lightning sets these in every unit: it is nothing that a file of the user's may have done."""
    environment = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _ignore_warnings() -> None:
    """For good, and only once: every change of the filters makes Python repeat all warnings."""
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
        raise KeyboardInterrupt from None
