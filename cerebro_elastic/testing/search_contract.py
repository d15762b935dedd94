"""What every search procedure promises, for a test to try::

@pytest.mark.parametrize("seed", range(5))
def test_contract(seed: int) -> None:
    check_search(MySearch, seed, most=20)
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
from cerebro_elastic.search.space import key
from cerebro_elastic.testing.tryout import Learn, Tryout, hparams_of

_NODES = 3
_STEPS = 5000
_LOOKS = 12


def bowl(view: ConfigView, units: int, _ends: bool) -> Mapping[str, float]:
    """A loss that falls with the units, to a level that the hyper-parameters decide."""
    level = sum(abs(float(v) - 0.3) for v in view.hparams.values() if isinstance(v, int | float))
    return {"val_loss": level + 1.0 / units, "train_loss": level + 1.1 / units}


def undefined(_standing: ConfigView, _units: int, _ends: bool) -> Mapping[str, float]:
    """NaN, always."""
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
    """Every promise of ``Search`` on one course of events by ``seed``; what it has come to.

    Results come in any order, from units that take their time; if there is ``trouble``, one config fails now
    and then and one is stopped by a person. At most ``most`` configs are proposed, ``concurrency`` are live
    at once. If the search ``finishes``, one of them at least comes to its end.
    """
    rng = random.Random(seed)
    tryout = Tryout(make(), learn, partitions=partitions, epochs=epochs, nodes=_NODES)
    running: list[str] = []
    for step in range(_STEPS):
        _check_takeover(tryout, make)
        tryout.settle()
        live = sum(s.status is Status.LIVE for s in tryout.configs.values())
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
    """Who takes over at this moment, with nothing but the record, goes on as the other would have."""
    search, context = make(), tryout.context
    decisions = tryout.search.decide(context)
    assert list(search.decide(context)) == list(decisions), "another verdict after a takeover"
    if not decisions:
        proposals = list(tryout.search.propose(context))
        assert list(search.propose(context)) == proposals, "another proposal after a takeover"
        if len(proposals) > 1 and not any(p.parent for p in proposals):
            one = tryout.copy(search)
            one._create(proposals[0])
            rest = list(search.propose(one.context))
            assert rest == proposals[1:], "a takeover in the middle of proposals changes the others"


def _check_end(tryout: Tryout, most: int, finishes: bool) -> None:
    configs = list(tryout.configs.values())
    points = [key(hparams) for hparams in hparams_of(configs)]
    assert len(set(points)) == len(points), f"a point was proposed twice: {points}"
    assert len(points) <= most, f"{len(points)} configs were proposed, the budget is {most}"
    done = [config for config in configs if config.status is Status.FINISHED]
    assert done or not finishes, f"no config came to its end: {tryout.reasons}"
    stops = [decision for decision in tryout.log if isinstance(decision, Stop)]
    assert all(stop.reason for stop in stops), "a config was stopped without a reason"


def unexplained(events: Sequence[Event], search: Search) -> list[str]:
    """The decisions in a recorded history that ``search`` would not have made: each has to be among its
    answers in one of the states just before it. (Commits may come between a look and what follows.)"""
    state, outlooks, strange = State(), deque[SearchContext](maxlen=_LOOKS), []
    for event in events:
        wanted = _decision(event)
        if wanted is not None and not any(wanted in _answers(search, look) for look in reversed(outlooks)):
            strange.append(f"{event} was not what {type(search).__name__} would have done")
        state = fold(state, event)
        if state.plan is not None:
            outlooks.append(observe(state, state.plan))
    return strange


def _decision(event: Event) -> object | None:
    """What the search has decided by this event, if it has."""
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
