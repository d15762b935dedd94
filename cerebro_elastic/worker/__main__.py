"""``torchrun ... -m cerebro_elastic.worker``: one rank of a node, until its run ends or it is to leave."""

from __future__ import annotations

import os
import signal
import sys

from cerebro_elastic.clock import SystemClock
from cerebro_elastic.process import die_with_parent
from cerebro_elastic.worker.leaving import Leaving, grace_of


def main() -> int:
    try:
        die_with_parent(int(os.environ["CEREBRO_AGENT"]))
    except KeyError:
        print(
            "cerebro_elastic.worker is started by torchrun with --rdzv-backend=cerebro; "
            "to run a recipe on this machine: cerebro run recipe.yaml",
            file=sys.stderr,
        )
        return 2
    leaving = _leave_when_asked()
    from cerebro_elastic.worker.rank import serve

    return serve(os.environ, leaving)


def _leave_when_asked() -> Leaving:
    """From here on SIGTERM and Ctrl-C, which torchrun passes on, ask to leave: first of all, since the
    imports take seconds."""
    clock = SystemClock()
    leaving = Leaving(clock)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.ask(grace_of(os.environ, clock.wall())))
    return leaving


if __name__ == "__main__":
    sys.exit(main())
