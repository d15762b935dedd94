"""A fork server: one process of a host imports torch and the user's module, and is forked for each process
that needs them.

An import of torch and Lightning takes seconds of CPU, a fork takes milliseconds. So ranks, their agents, and
the checks before a run are forks of one process that has done the imports::

    with ForkServer(["torch"]) as server:
        server.load(["lightning", "sweep"], "/home/her/recipes", log)
        env = {**os.environ, SOCKET: server.path}
        process = start([*PYTHON, "-m", "json.tool"], env, stdin=DEVNULL, stdout=log, stderr=log)
        process.wait()

Agents are torchrun, and need torch. The ranks of a run whose task takes numpy's arrays do not: they are forks
of a second server without torch (``runs/start/imports.py``).

Four processes take part:

- The *server* (``server.py``) has one thread and only imports and forks.
- A *keeper* (``keeper.py``) is forked for each requested process. It forks that process, passes signals on to
  it, reports how it ended, and kills its remaining descendants.
- The *child* is the requested process: a Python module, run as ``python -m`` runs it.
- The *client* (``client.py``) holds a connection to the keeper. When the client ends, in whatever way, the
  keeper kills the child and all that descends from it.

``multiprocessing`` starts the processes that make batches in the same way, by a ``ForkServerContext``
(``context.py``).

torchrun starts ranks by a command. That command then stands in for the child (``client.stand_in``): it
requests a fork of itself, passes signals on, and ends as the fork ends.
"""

from __future__ import annotations

from cerebro_elastic.system.forkserver.client import STAND_IN as STAND_IN
from cerebro_elastic.system.forkserver.client import ForkedProcess as ForkedProcess
from cerebro_elastic.system.forkserver.client import ForkServer as ForkServer
from cerebro_elastic.system.forkserver.client import Process as Process
from cerebro_elastic.system.forkserver.client import Refused as Refused
from cerebro_elastic.system.forkserver.client import connect as connect
from cerebro_elastic.system.forkserver.client import stand_in as stand_in
from cerebro_elastic.system.forkserver.client import start as start
from cerebro_elastic.system.forkserver.messages import SOCKET as SOCKET
