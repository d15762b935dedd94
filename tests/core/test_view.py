"""The view of a run, advanced event by event."""

from __future__ import annotations

from functools import reduce

from cerebro_elastic.core.history.derived import derive
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.history.view import ConfigHistory, RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import NodeJoined, NodeLeft, RunOpened, StateRead
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef
from support.builders import visit

PLAN = Plan("run", partitions=2, epochs=2)
NEW = Config("c0", {})


def ref(number: int) -> CheckpointRef:
    return CheckpointRef(f"memory://c0/{number}", f"digest {number}", 1)


def numbered(number: int) -> Visit:
    before, metrics = ref(number - 1) if number else None, {"loss": float(number)}
    epoch, partition = divmod(number, 2)
    chain = {"index_in_epoch": partition, "attempt": number + 1, "input": before, "output": ref(number)}
    return visit("c0", epoch, partition, metrics=metrics, **chain)


VISITS = [numbered(number) for number in range(4)]


def read(revision: int, visits: int) -> StateRead:
    """The state after so many visits."""
    done = VISITS[:visits]
    config = reduce(lambda at, each: advance(at, each, PLAN), done, NEW)
    return StateRead(revision, derive(State(plan=PLAN, configs={"c0": config}), done, ()), tuple(done))


def test_each_visit_is_new_once_and_again_if_the_store_had_lost_it() -> None:
    view = RunView([RunOpened(1, PLAN)])
    assert view.take(read(5, 2)) == [(1, VISITS[0]), (2, VISITS[1])]
    before = view.log
    assert view.take(read(3, 1)) == [], "the store was restored from a snapshot"
    assert (view.log, view.visits) == (VISITS[:1], {"c0": VISITS[:1]})
    assert view.log is not before
    assert view.take(read(9, 3)) == [(2, VISITS[1]), (3, VISITS[2])]


def test_nodes_that_have_left_are_still_known() -> None:
    node = Node("n", "host", registration=2)
    view = RunView([RunOpened(1, PLAN), NodeJoined(2, node), NodeLeft(3, "n")])
    assert (view.nodes, view.state.nodes) == ({"n": node}, {})


def test_a_config_by_its_visits_alone_is_as_in_the_state() -> None:
    history = ConfigHistory.of(NEW, VISITS, PLAN)
    state = read(9, 4).state
    assert (history.config, history.curve) == (state.configs["c0"], state.curves["c0"])
    assert [(end.epochs, end.checkpoint) for end in epoch_ends(history.curve)] == [(1, ref(1)), (2, ref(3))]
    assert history.last == (ref(2), ref(3))
