"""The run as a search sees it: its configs, their logged values, and its remaining budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.history.costs import stays_of
from cerebro_elastic.core.history.estimates import hop_seconds
from cerebro_elastic.core.history.members import by_config, mean_curve, named, status_of
from cerebro_elastic.core.history.progress import units_done
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State


def observe(state: State, plan: Plan) -> SearchContext:
    """The run as a search sees it."""
    return observed(Moment(state, plan))


def seen(state: State, plan: Plan, config: str) -> ConfigView:
    """One config of the run, with all its members, as a search sees it."""
    members = named(state.configs, config)
    busy = Moment(state, plan).busy
    views = [_view.function(plan, each, state.curves.get(each.id), busy.get(each.id)) for each in members]
    return _group.function(plan, members[0], tuple(views)) if plan.has_members else views[0]


def observed(moment: Moment) -> SearchContext:
    """The moment as a search sees it."""
    state, plan = moment.state, moment.plan
    views = _view(plan, state.configs, state.curves, moment.busy)
    names = tuple(views)
    order = _in_order(names)
    configs = list(views.values() if order == names else map(views.__getitem__, order))
    if plan.has_members:
        groups = by_config(state.configs.values()).values()
        firsts = {members[0].id: members[0] for members in groups}
        of_groups = {members[0].id: tuple(views[each.id] for each in members) for members in groups}
        configs = list(_group(plan, firsts, of_groups).values())
    stays = stays_of(state)
    joined = (stay.joined for stay in stays)
    return SearchContext(
        configs=configs,
        partitions=plan.trained,
        epochs=plan.epochs,
        nodes=max(len(moment.nodes), plan.min_nodes),
        usage=state.usage,
        save_seconds=hop_seconds(state.hops),
        now=max(state.usage.until, *(attempt.freed for attempt in state.saving.values()), *joined, 0.0),
        rest_seconds=partial(_rest_of_epoch, moment),
        wait_seconds=moment.wait_seconds,
        stays=stays,
    )


def _rest_of_epoch(moment: Moment, config: str) -> float:
    """The expected remaining seconds of a config's epoch: those of the longest of its trainings that are live
    or can be resumed."""
    members = named(moment.state.configs, config) if config else []
    going_on = [each for each in members if each.status is Status.LIVE] or members
    return max(map(moment.rest_of_epoch, going_on), default=moment.rest_of_epoch(None))


@lru_cache(maxsize=1)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Ids in the order of creation (``lineage.in_order``)."""
    return tuple(sorted(sorted(names), key=len))


@PerConfig
def _view(plan: Plan, config: Config, curve: Sequence[Point] | None, attempt: Attempt | None) -> ConfigView:
    return ConfigView(
        config=config.id,
        hparams=config.hparams,
        status=config.status,
        epochs=config.epoch,
        units=units_done(config, plan),
        curve=curve or (),
        idle=attempt is None,
        parent=(config.parent.config or None) if config.parent else None,
        origin=config.origin,
        by_hand=config.by_hand,
        fold=config.fold,
        repeat=config.repeat,
    )


@PerConfig
def _group(_plan: Plan, first: Config, members: tuple[ConfigView, ...]) -> ConfigView:
    """The view of a config of all of its members."""
    counting = [each for each in members if each.status is Status.LIVE] or members
    return ConfigView(
        config=first.seen_as,
        hparams=first.hparams,
        status=status_of(each.status for each in members),
        epochs=min(each.epochs for each in counting),
        units=min(each.units for each in counting),
        curve=mean_curve(
            [each.curve for each in members], [each.status is Status.FINISHED for each in members]
        ),
        idle=any(each.idle for each in counting),
        origin=first.origin,
        by_hand=any(each.by_hand for each in members),
        members=members,
    )
