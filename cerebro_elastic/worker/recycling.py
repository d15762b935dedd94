"""Recycling: a rank whose memory has grown starts itself anew, in place.

Libraries keep some memory of units that are long over; DeepSpeed's ZeRO-3 is known for it. Between two units
such a rank has itself replaced by a fresh process (``execve``), which has the same id: its agent sees
nothing, the node's registration stands, no unit is lost and no restart counted. A unit that is assigned
meanwhile waits for the seconds that it takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import torch

from cerebro_elastic.worker.memory import bytes_of, held, trim

GROWTH = "CEREBRO_GROWTH"
_GROWTH = 2 * 10**9
"""Bytes that a rank's memory may grow by, if ``CEREBRO_GROWTH`` does not say."""


class Growth:
    """How much a rank's memory has grown since this was made."""

    def __init__(self, device: torch.device, env: Mapping[str, str]) -> None:
        most = bytes_of(env, GROWTH)
        self._most = _GROWTH if most is None else most
        self._device = device
        self._before = held(device)

    def too_much(self, saving: int = 0) -> bool:
        """Whether it is time for a fresh process; to be asked between units. ``saving`` are the bytes of a
        state that is still being saved, and gone after that. What allocators keep for a next unit is given
        back first, but only if it looks as if that mattered: to get it again takes time."""
        most = self._before + self._most + saving
        if held(self._device) <= most:
            return False
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        trim()
        return held(self._device) > most


def start_anew() -> None:
    """Replace this process by a fresh one with the same command, id, environment and output."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Python's own files close by themselves, those of libraries may not.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
