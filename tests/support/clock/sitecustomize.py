"""Python below libfaketime: that library (0.9.10) refuses the call behind ``time.sleep``."""

import select
import time


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
