"""A rank: a service loop that imports torch once and does unit after unit, warm."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import torch

from cerebro_elastic import __version__, logs
from cerebro_elastic.clock import SystemClock
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.values import Spec
from cerebro_elastic.errors import CerebroError, RunError, StoreError
from cerebro_elastic.store.etcd import EtcdStore
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.train.bench import Bench
from cerebro_elastic.worker.attempts import Attempts
from cerebro_elastic.worker.inbox import Inbox


def serve(env: Mapping[str, str]) -> int:
    """Serve the node and run that ``env`` names until the run has ended; the exit code."""
    logs.start()
    log = logs.EventLog(run=env["CEREBRO_RUN"], node=env["CEREBRO_NODE"])
    ledger = Ledger(EtcdStore(StoreSettings.from_env(env)), env["CEREBRO_RUN"])
    try:
        if env.get("LOCAL_RANK", "0") == "0":
            _serve(ledger, env, log)
        else:
            _wait_for_end(ledger, env)
    except StoreError:
        log.exception("rank ends, to be started anew")
        return 1
    except CerebroError:
        # Starting anew would not help: this machine has not what the run needs.
        log.exception("this machine cannot be a node of the run")
        os.kill(int(env["CEREBRO_AGENT"]), signal.SIGTERM)
        return 1
    finally:
        ledger.store.close()
    log.info("run ended")
    return 0


def _serve(ledger: Ledger, env: Mapping[str, str], log: logs.EventLog) -> None:
    node = env["CEREBRO_NODE"]
    with Inbox(ledger, node) as inbox:
        warm_up()
        spec = wait_for_spec(ledger)
        if spec.version != __version__:
            raise RunError(
                f"the run was started by cerebro-elastic {spec.version}, this node has {__version__}: "
                "install the same version on all nodes"
            )
        cache = Path(env.get("CEREBRO_CACHE") or Path.home() / ".cache" / "cerebro")
        device = f"cuda:{env.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
        bench = Bench(spec, cache, device)
        bench.use_threads()
        with Attempts(ledger, spec, bench, SystemClock(), log, env["CEREBRO_BOOT"]) as attempts:
            log.info("ready", device=device, threads=torch.get_num_threads())
            while (attempt := inbox.next()) is not None:
                attempts.perform(attempt)


def warm_up() -> None:
    """Import behind the wait for the first unit what the first optimizer would import (seconds)."""
    threading.Thread(target=importlib.import_module, args=("torch._dynamo",), daemon=True).start()


def wait_for_spec(ledger: Ledger) -> Spec:
    """The run's spec; a node may be there before the run is opened."""
    snapshot = ledger.store.range(ledger.keys.spec)
    spec = ledger.spec()
    if spec is None:
        with ledger.store.watch(ledger.keys.spec, snapshot.revision + 1) as watch:
            while spec is None:
                watch.next()
                spec = ledger.spec()
    return spec


def _wait_for_end(ledger: Ledger, env: Mapping[str, str]) -> None:
    """Further ranks of a node have nothing to do in units on one rank."""
    with Inbox(ledger, env["CEREBRO_NODE"]) as inbox:
        while inbox.next() is not None:
            pass
