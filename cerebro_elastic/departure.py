"""The time until which this process may stay, once it was asked to leave: one deadline for all that it still
does. What waits for somebody else asks here how long."""

from __future__ import annotations

import math
import time

_deadline = math.inf


def leave_within(seconds: float) -> None:
    """This process is to end within ``seconds``. Of several requests the earliest deadline counts. It takes
    no lock, so that a signal handler may call it."""
    global _deadline
    _deadline = min(_deadline, time.monotonic() + seconds)


def seconds_to_leave() -> float:
    """Seconds until the deadline, negative behind it; infinite if nobody has asked this process to leave."""
    return _deadline - time.monotonic()


def stay() -> None:
    """Forget the request: what was asked to leave is over, and the process goes on with something else."""
    global _deadline
    _deadline = math.inf
