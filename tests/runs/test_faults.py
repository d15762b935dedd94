"""Faults of the one-machine run: stopped, killed, its ranks and agents killed. The verdict is the record:
the invariants hold and every config's states are those of its quiet replay."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import redecide
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.system.forkserver import Process
from support.processes_of_users import cerebro
from support.waiting import SOON, wait_for

pytestmark = pytest.mark.cluster
EPOCHS = 4
STORMY = f"stormy-{uuid.uuid4().hex[:6]}"


@contextmanager
def cerebro_run(project: Path, run_id: str, log: Path) -> Iterator[Process]:
    """The command, as a user types it."""
    words = ["run", str(project / "plain.yaml"), "--run-id", run_id, "--epochs", str(EPOCHS)]
    with cerebro(log, *words, "--home", str(project / "runs"), "--grace", "2") as started:
        yield started


def units(folder: RunFolder) -> int:
    return folder.history.read_text().count('"kind":"UnitCommitted"') if folder.history.exists() else 0


def joins(folder: RunFolder) -> int:
    return folder.history.read_text().count('"kind":"NodeJoined"')


def processes_of(run_id: str, text: str) -> list[int]:
    """Pids of the processes of a run whose command line has ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
            ours = f"CEREBRO_RUN={run_id}\0" in (entry / "environ").read_text() or run_id in command
        except OSError:
            continue
        if text in command.replace("\0", " ") and ours:
            found.append(int(entry.name))
    return found


def ranks(run_id: str) -> list[int]:
    """Ranks have the worker module as their own, agents as torchrun's argument."""
    agents = set(processes_of(run_id, "torch.distributed.run"))
    return [pid for pid in processes_of(run_id, "-m cerebro_elastic.worker") if pid not in agents]


def test_a_run_survives_everything_that_one_machine_can_do_to_it(project: Path, tmp_path: Path) -> None:
    folder, log = RunFolder(project / "runs" / STORMY), tmp_path / "log"
    with cerebro_run(project, STORMY, log) as first:
        wait_for(lambda: units(folder) > 4, "the first units")
        first.send_signal(signal.SIGTERM)
        assert first.wait(SOON) == 130, log.read_text()
        assert "continues from there" in log.read_text()
        assert not processes_of(STORMY, "torch.distributed.run")
        assert not folder.endpoint.exists()
    stopped = read_journal(folder.history)
    drained = {event.node for event in stopped if isinstance(event, ev.NodeDraining)}
    assert (
        drained == {event.node for event in stopped if isinstance(event, ev.NodeLeft)} == {"node-0", "node-1"}
    )
    done = units(folder)

    with cerebro_run(project, STORMY, log) as second:
        wait_for(lambda: units(folder) > done + 3, "units after the resume")
        second.kill()
        second.wait()
        wait_for(lambda: not processes_of(STORMY, "torch.distributed.run"), "agents to notice")
        wait_for(lambda: not ranks(STORMY), "ranks to end with their agents")
    done = units(folder)

    with cerebro_run(project, STORMY, log) as third:
        wait_for(lambda: units(folder) > done + 3, "units after the kill")
        wait_for(lambda: len(ranks(STORMY)) == 2, "the ranks of both nodes")
        before, joined = set(ranks(STORMY)), joins(folder)
        (etcd,) = processes_of(STORMY, f"--data-dir {folder.etcd}")
        os.kill(etcd, signal.SIGKILL)
        done = units(folder)
        wait_for(lambda: units(folder) > done + 3, "units after the store's death")
        assert processes_of(STORMY, f"--data-dir {folder.etcd}") not in ([], [etcd])
        assert (set(ranks(STORMY)), joins(folder)) == (before, joined), "no other process was started again"
        os.kill(min(before), signal.SIGKILL)
        wait_for(lambda: len(set(ranks(STORMY)) - before) == 1, "the dead rank to be started anew")
        wait_for(lambda: units(folder) > done + 6, "units after the rank's death")
        os.kill(processes_of(STORMY, "node=node-1")[0], signal.SIGKILL)
        assert third.wait(SOON) == 0, log.read_text()
        output = log.read_text()
        assert "node-1 was lost" in output
        assert "node-1 was killed (SIGKILL); to be started anew in 1 s" in output

    result = cerebro_elastic.Run.open(STORMY, home=project / "runs").result
    assert [row.status for row in result.leaderboard] == ["finished"] * 4
    assert verify(result) == []
    assert all(visit.same for visit in replay(result, result.best.config))
    events = read_journal(folder.history)
    # Each leader decided as any other controller would have.
    assert redecide(events, Auto(), make_search(result.recipe)).explanation is None
    # A unit that was stopped part-way has two visits.
    assert sum(isinstance(e, ev.UnitCommitted) and e.visit.whole for e in events) == 4 * 3 * EPOCHS
    back = [event for event in events[len(stopped) :] if isinstance(event, ev.NodeReady)]
    assert all(event.cached == (0, 1, 2) for event in back), "a node that comes back has its old cache"
    lost = {event.token for event in events if isinstance(event, ev.UnitWithdrawn)}
    lost |= {event.failure.attempt for event in events if isinstance(event, ev.UnitFailed)}
    trained = {event.token for event in events if isinstance(event, ev.UnitTrained)}
    # Each fault costs each of its nodes one unit in training, and at most one that is being saved. After the
    # kill of everything, the registrations of the dead nodes last until their leases end, and may be given
    # units that nobody begins.
    assert len(lost - trained) <= 8
    assert len(lost & trained) <= 8
