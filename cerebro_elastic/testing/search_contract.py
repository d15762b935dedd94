"""The contract of search procedures. ``check_search`` tries a search on a random course of events.

Example::

    @pytest.mark.parametrize("seed", range(5))
    def test_my_search_keeps_the_contract(seed: int) -> None:
        check_search(lambda: MySearch(recipe), seed, most=20)
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cerebro_elastic.core.decisions.decide import observe
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, ConfigResumed, Event
from cerebro_elastic.core.model.interfaces import ConfigView, Proposal, Resume, Search, SearchContext, Stop
from cerebro_elastic.core.model.state import State
from cerebro_elastic.search.sampling import key
from cerebro_elastic.testing.tryout import Learn, Tryout, hparams_of

_NODES = 3
_STEPS = 5000
_LOOKS = 12


def bowl(view: ConfigView, units: int, _ends: bool) -> Mapping[str, float]:
    """A loss that falls with the units to a level that depends on the hyper-parameters."""
    level = sum(abs(float(v) - 0.3) for v in view.hparams.values() if isinstance(v, int | float))
    return {"val_loss": level + 1.0 / units, "train_loss": level + 1.1 / units}


def undefined(_view: ConfigView, _units: int, _ends: bool) -> Mapping[str, float]:
    """Metrics that are NaN, always."""
    return {"val_loss": math.nan, "train_loss": math.nan}


def check_search(
    make: Callable[[], Search],
    seed: int,
    *,
    most: int,
    epochs: int = 9,
    partitions: int = 2,
    learn: Learn = bowl,
    finishes: bool = True,
    trouble: bool = True,
    concurrency: int | None = None,
) -> Tryout:
    """Check a search's contract on one random course of events.

    The contract: the search depends on its ``SearchContext`` alone (another instance decides the same at any
    moment), decides only on idle configs and on none that a person has decided on, proposes no point twice,
    gives a reason for each stop, and comes to an end.

    Args:
        make: Makes a new instance of the search.
        seed: The seed of the course of events: units end in any order.
        most: The most configs that the search may propose (children of others not counted).
        epochs: Epochs until a config is finished.
        partitions: Units in an epoch.
        learn: The metrics of each config after each unit.
        finishes: Whether at least one config must be trained to its end.
        trouble: Whether configs fail now and then, and a person stops one.
        concurrency: The most configs that may be live at once; ``None`` for any number.

    Returns:
        The course of events, for further checks.

    Raises:
        AssertionError: The search breaks its contract.

    Example::

        tryout = check_search(lambda: MySearch(recipe), seed=1, most=20, concurrency=4)
        assert tryout.usage.units < 200
    """
    rng = random.Random(seed)
    tryout = Tryout(make(), learn, partitions=partitions, epochs=epochs, nodes=_NODES)
    running: list[str] = []
    for step in range(_STEPS):
        _check_takeover(tryout, make)
        tryout.settle()
        live = sum(view.status is Status.LIVE for view in tryout.configs.values())
        assert concurrency is None or live <= concurrency, f"{live} configs are live at once"
        waiting = [config for config in tryout.live if config not in running]
        if not waiting and not running:
            break
        if waiting and len(running) < _NODES:
            running.append(rng.choice(waiting))
            tryout.begin(running[-1])
            continue
        config = running.pop(rng.randrange(len(running)))
        tryout.now += 1.0 / _NODES
        if trouble and step % 41 == 40:
            tryout.fail(config)
        else:
            tryout.end(config)
        if trouble and step == 29 and tryout.live:
            tryout.stop_by_hand(rng.choice(tryout.live))
    else:
        raise AssertionError(f"the search does not end within {_STEPS} steps")
    _check_end(tryout, most, finishes)
    return tryout


def _check_takeover(tryout: Tryout, make: Callable[[], Search]) -> None:
    """A new leader has only the record. It must decide as the old one would."""
    search, context = make(), tryout.context
    decisions = tryout.search.decide(context)
    assert list(search.decide(context)) == list(decisions), "other decisions after a takeover"
    if not decisions:
        proposals = list(tryout.search.propose(context))
        assert list(search.propose(context)) == proposals, "other proposals after a takeover"
        if len(proposals) > 1 and not any(p.parent for p in proposals):
            successor = tryout.copy(search)
            successor.create(proposals[0])
            later = list(search.propose(successor.context))
            assert later == proposals[1:], "a takeover in the middle of proposals changes the others"


def _check_end(tryout: Tryout, most: int, finishes: bool) -> None:
    configs = list(tryout.configs.values())
    points = [key(hparams) for hparams in hparams_of(configs)]
    assert len(set(points)) == len(points), f"a point was proposed twice: {points}"
    assert len(points) <= most, f"{len(points)} configs were proposed, the budget is {most}"
    finished = [config for config in configs if config.status is Status.FINISHED]
    assert finished or not finishes, f"no config came to its end: {tryout.reasons}"
    stops = [decision for decision in tryout.log if isinstance(decision, Stop)]
    assert all(stop.reason for stop in stops), "a config was stopped without a reason"


def unexplained(events: Sequence[Event], search: Search) -> list[str]:
    """The decisions in a recorded history that ``search`` would not have made.

    Each recorded decision must be among the search's answers in one of the states just before it. (Other
    commits may lie between the state that the leader saw and its decision.)
    """
    state, contexts, strange = State(), deque[SearchContext](maxlen=_LOOKS), []
    for event in events:
        wanted = _decision(event)
        if wanted is not None and not any(wanted in _answers(search, look) for look in reversed(contexts)):
            strange.append(f"{event} was not what {type(search).__name__} would have done")
        state = fold(state, event)
        if state.plan is not None:
            contexts.append(observe(state, state.plan))
    return strange


def _decision(event: Event) -> object | None:
    """The search's decision that the event records, if it records one."""
    match event:
        case ConfigCreated(config=config) if not config.by_hand:
            return Proposal(
                config.hparams, (config.parent.config or None) if config.parent else None, config.origin
            )
        case ConfigEnded(config=name, status=Status.STOPPED, reason=reason, by_hand=False):
            return Stop(name, reason)
        case ConfigResumed(config=name, reason=reason, by_hand=False):
            return Resume(name, reason)
    return None


def _answers(search: Search, context: SearchContext) -> Sequence[object]:
    return search.decide(context) or search.propose(context)
