"""Recycling: a rank whose memory has grown replaces itself by a fresh process.

Libraries keep memory of units that are long over; DeepSpeed's ZeRO-3 is known for it. Between two units such
a rank calls ``execve``. The fresh process has the same id: its agent does not notice, the node's registration
stands, no unit is lost and no restart is counted. A unit that is assigned meanwhile waits for some seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from cerebro_elastic.system.process import PYTHON
from cerebro_elastic.worker.memory import bytes_in_use, bytes_of, free_cached, trim

GROWTH = "CEREBRO_GROWTH"
_GROWTH = 2 * 10**9
"""Bytes that a rank's memory may grow by, unless ``CEREBRO_GROWTH`` gives another number."""


class Growth:
    """How much the memory of a rank has grown since this object was made."""

    def __init__(self, device: str, env: Mapping[str, str]) -> None:
        most = bytes_of(env, GROWTH)
        self._most = _GROWTH if most is None else most
        self._device = device
        self._before = bytes_in_use(device)

    def too_much(self, saving: int = 0) -> bool:
        """Whether it is time for a fresh process; to be called between units.

        Memory that allocators keep for the next unit is given back first, but only if the limit is exceeded:
        to get it again takes time.

        Args:
            saving: Bytes of a state that is still being saved in the background.
        """
        most = self._before + self._most + saving
        if bytes_in_use(self._device) <= most:
            return False
        free_cached(self._device)
        trim()
        return bytes_in_use(self._device) > most


def start_anew() -> None:
    """Replace this process by a fresh one with the same command, id, environment and output."""
    if (workers := sys.modules.get("cerebro_elastic.data.batch_workers")) is not None:
        workers.end_idle()  # no exit function runs here
    sys.stdout.flush()
    sys.stderr.flush()
    # Python's own files close by themselves, those of libraries may not.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(sys.executable, [*PYTHON, *(word for word in sys.orig_argv[1:] if word != "-P")])
