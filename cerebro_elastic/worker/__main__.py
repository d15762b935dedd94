"""``torchrun ... -m cerebro_elastic.worker``: one rank of a node, until its run ends or it must leave."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cerebro_elastic.system.forkserver import SOCKET, stand_in
from cerebro_elastic.system.process import SAFE_PATH, die_with_parent

if TYPE_CHECKING:
    from cerebro_elastic.worker.leaving import Leaving, Siblings

_ASKING = (signal.SIGTERM, signal.SIGINT)
FORKED = "--forked"
"""The argument of a rank that is a fork: its keeper ends it with its agent."""


def main() -> int:
    """The exit status of a rank. If the host has a fork server, this process stands in for the rank."""
    if os.environ.items() >= SAFE_PATH.items():
        del os.environ[next(iter(SAFE_PATH))]
    try:
        if FORKED not in sys.argv:
            die_with_parent(int(os.environ["CEREBRO_AGENT"]))
    except KeyError:
        print(
            "cerebro_elastic.worker is started by torchrun with --rdzv-backend=cerebro; "
            "to run a recipe on this machine: cerebro run recipe.yaml",
            file=sys.stderr,
        )
        return 2
    if (server := os.environ.pop(SOCKET, None)) is not None:
        code = stand_in(server, [_program(), FORKED])
        if code is not None:
            return code
    return _serve()


def _serve() -> int:
    """Serve as a rank. What it takes is imported here: a stand-in needs none of it."""
    from cerebro_elastic.system.forkserver.keeper import ANEW
    from cerebro_elastic.worker.leaving import Siblings
    from cerebro_elastic.worker.rendezvous.heartbeats import Heartbeat

    folder, local_rank = Path(os.environ["CEREBRO_DUMPS"]), int(os.environ.get("LOCAL_RANK", "0"))
    siblings = Siblings(folder, local_rank)
    siblings.come()
    heartbeat = Heartbeat(folder, local_rank)
    leaving = _leave_when_asked(siblings)
    from cerebro_elastic.worker import rank, resources

    code = rank.serve(os.environ, leaving, heartbeat)
    if code is None:
        # A signal from now on is for the process that follows.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
        if not leaving.asked:
            if FORKED in sys.argv:
                return ANEW
            resources.start_anew()
    heartbeat.stop()
    siblings.leave()
    return code or 0


def _program() -> str:
    """The module that this process runs."""
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec is not None else __name__


def _leave_when_asked(siblings: Siblings) -> Leaving:
    """Let SIGTERM and Ctrl-C, which torchrun passes on, make this rank leave. This comes first, since imports
    take seconds. If a sibling has died the signals end this process at once: the agent restarts all ranks."""
    from cerebro_elastic.system.clock import SystemClock
    from cerebro_elastic.system.departure import leave_within
    from cerebro_elastic.worker.leaving import Leaving, grace_of

    clock = SystemClock()
    leaving = Leaving(clock)

    def asked(*_: object) -> None:
        if siblings.died():
            os._exit(1)
        grace = grace_of(os.environ, clock.wall())
        leave_within(grace)
        leaving.ask(grace)

    for number in _ASKING:
        signal.signal(number, asked)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
    return leaving


if __name__ == "__main__":
    sys.exit(main())
