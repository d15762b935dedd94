"""Which nodes form a gang, and for which gang idle nodes are reserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cerebro_elastic.core.decisions.assignment import assignments
from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.model.attempts import Attempt, Failure, Member
from cerebro_elastic.core.model.events import UnitAssigned
from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Estimate, State
from cerebro_elastic.core.model.units import Strategy, Unit
from support.builders import config, failure

SINGLE, GANG = Strategy(), Strategy("ddp", 2, 2)


class InOrder:
    """Takes for each idle node the first config that is named, else none."""

    def __init__(self, order: str) -> None:
        self.order = order

    def choose(self, instance: SchedulingContext) -> list[tuple[str, Unit]]:
        chosen: dict[str, tuple[str, Unit]] = {}
        for wanted in self.order:
            for node, units in instance.eligible.items():
                mine = [unit for unit in units if unit.config == wanted]
                if mine and wanted not in chosen and node not in dict(chosen.values()):
                    chosen[wanted] = (node, mine[0])
        return list(chosen.values())


def nodes(**hosts: str) -> dict[str, Node]:
    """Nodes on hosts; a host "A100:h" has other hardware."""
    return {
        name: Node(name, host, hardware=host.partition(":")[0] if ":" in host else "cpu", registration=at)
        for at, (name, host) in enumerate(hosts.items(), start=1)
    }


def attempt(config: str, token: int, *names: str) -> dict[str, Attempt]:
    unit = Unit(config, 0, 0)
    gang = tuple(Member(name, 0) for name in names[1:])
    made = Attempt(
        unit, names[0], 0, 0, strategy=Strategy("ddp", len(names), len(names)), gang=gang, token=token
    )
    return dict.fromkeys(names, made)


def moment(
    there: Mapping[str, Node],
    strategies: tuple[Strategy, ...] = (GANG,),
    configs: Mapping[str, int] | None = None,
    homes: str = "",
    running: Sequence[Mapping[str, Attempt]] = (),
    failures: tuple[Failure, ...] = (),
) -> State:
    """``configs`` with their revisions; if there are two choices, those of upper case are too large for a
    single node, the others for a gang."""
    revisions = configs or {"C": 9}
    homes = homes or next(iter(there))
    known = {}
    if len(strategies) > 1:
        for name in revisions:
            taken = GANG if name.isupper() else SINGLE
            known[name] = tuple(
                Estimate(strategy, kind, 1.0, 0, refusal=None if strategy == taken else "no")
                for strategy in strategies
                for kind in {node.hardware for node in there.values()}
            )
    return State(
        plan=Plan("r", len(homes), 2, max_nodes=8, strategies=strategies),
        configs={
            name: config(name, revision=revision, failures=failures) for name, revision in revisions.items()
        },
        nodes=there,
        homes={j: (home,) for j, home in enumerate(homes)},
        attempts={name: made for attempts in running for name, made in attempts.items()},
        profiles=known,
        revision=90,
    )


def assigned(state: State, order: str = "C") -> dict[str, tuple[str, ...]]:
    """By config: the nodes that it gets."""
    assert state.plan is not None
    actions = list(assignments(Moment(state, state.plan), InOrder(order)))
    assert all(isinstance(action, UnitAssigned) for action in actions)
    return {action.attempt.unit.config: action.attempt.nodes for action in actions}


def test_a_gang_is_on_one_host_where_possible_and_led_by_the_partitions_home() -> None:
    assert assigned(moment(nodes(a="h", b="g", c="h"))) == {"C": ("a", "c")}
    assert assigned(moment(nodes(a="h", b="g", c="g"))) == {"C": ("a", "b")}, "the home has no neighbour"
    assert assigned(moment(nodes(a="h", b="g", c="h"), homes="c")) == {"C": ("c", "a")}
    assert assigned(moment(nodes(a="h"))) == {}


def test_a_gang_has_nodes_of_one_kind() -> None:
    mixed = nodes(a="cpu:h", b="A100:h", c="cpu:g")
    assert assigned(moment(mixed)) == {"C": ("a", "c")}
    assert assigned(moment(nodes(a="cpu:h", b="A100:h"))) == {}
    lonely = moment(nodes(a="cpu:h", b="A100:h", c="A100:g"), homes="a")
    assert assigned(lonely) == {"C": ("b", "c")}, "the home cannot, so others do"


def test_a_node_that_failed_the_unit_is_left_out_of_its_next_attempt_if_possible() -> None:
    failures = (failure(Unit("C", 0, 0), strategy=GANG),)
    assert assigned(moment(nodes(a="h", b="h", c="g"), failures=failures)) == {"C": ("a", "c")}
    assert assigned(moment(nodes(a="h", b="h"), failures=failures)) == {"C": ("a", "b")}


def test_of_two_gangs_that_need_a_node_the_policys_first_gets_it() -> None:
    three = moment(nodes(a="h", b="h", c="h"), configs={"C": 8, "D": 9}, homes="ab")
    assert assigned(three, "CD") == {"C": ("a", "b")}
    assert assigned(three, "DC") == {"D": ("a", "b")}
    four = moment(nodes(a="h", b="h", c="h", d="h"), configs={"C": 8, "D": 9}, homes="ac")
    assert assigned(four, "DC") == {"D": ("a", "b"), "C": ("c", "d")}


def test_nodes_are_reserved_for_a_gang_after_as_many_other_units_as_nodes() -> None:
    there, both = nodes(a="h", b="h"), (SINGLE, GANG)
    one = moment(there, both, {"C": 10, "d": 11, "e": 8}, "ab", [attempt("e", 9, "a")])
    assert assigned(one, "Cd") == {"d": ("b",)}, "e was there before it"
    two = moment(there, both, {"C": 10, "d": 11, "e": 8}, "ab", [attempt("e", 12, "a")])
    assert assigned(two, "dC") == {}, "b is held"
    then = moment(there, both, {"C": 10, "d": 11, "e": 13}, "ab")
    assert assigned(then, "deC") == {"C": ("a", "b")}, "and it goes first"
    after = moment(there, both, {"C": 14, "d": 11, "e": 13}, "ab")
    assert assigned(after, "deC") == {"d": ("a",), "e": ("b",)}, "now it waits behind them"
    few = moment(there, both, {"C": 10, "d": 11}, "ab")
    assert assigned(few, "dC") == {"C": ("a", "b")}, "there is no other"


def test_no_node_waits_for_a_gang_that_is_impossible() -> None:
    waits = {"C": 9, "d": 10}
    alone = moment(nodes(a="h", b="A100:h"), (SINGLE, GANG), waits, "ab", [attempt("e", 11, "b")])
    either = (Estimate(SINGLE, "cpu", 2.0, 0), Estimate(GANG, "cpu", 1.0, 0))
    alone = replace(alone, profiles={**alone.profiles, "C": either})
    assert assigned(alone, "Cd") == {"C": ("a",)}, "it takes what it can get"
