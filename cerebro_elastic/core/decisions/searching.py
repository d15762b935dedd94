"""The search's part in a decision: what it is shown of a state, and the actions that its answers are."""

from __future__ import annotations

from collections.abc import Iterator

from cerebro_elastic.core.decisions.membership import used_nodes
from cerebro_elastic.core.history.lineage import born, child, fresh_names, in_order
from cerebro_elastic.core.history.progress import units_done
from cerebro_elastic.core.model.actions import CreateConfig, EndConfig, ResumeConfig
from cerebro_elastic.core.model.interfaces import Outlook, Proposal, Resume, Search, Standing, Stop
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.values import Config, Plan, Status


def observe(state: State, plan: Plan) -> Outlook:
    """The run as a search sees it."""
    busy = {attempt.unit.config for attempt in state.underway()}
    standings = [
        Standing(
            config=config.id,
            hparams=config.hparams,
            status=config.status,
            epochs=config.epoch,
            units=units_done(config, plan),
            curve=state.curves.get(config.id, ()),
            idle=config.id not in busy,
            parent=(config.parent.config or None) if config.parent else None,
            origin=config.origin,
            by_hand=config.by_hand,
        )
        for config in in_order(state.configs.values())
    ]
    return Outlook(
        standings=standings,
        partitions=plan.partitions,
        epochs=plan.epochs,
        nodes=max(len(used_nodes(state, plan)), plan.min_nodes),
        spent=state.spent,
    )


def searches(state: State, plan: Plan, search: Search) -> Iterator[CreateConfig | EndConfig | ResumeConfig]:
    """What the search wants to be done next."""
    outlook = observe(state, plan)
    verdicts = search.decide(outlook)
    for verdict in verdicts:
        config = state.configs[verdict.config]
        match verdict:
            case Stop(reason=reason):
                yield EndConfig(config, Status.STOPPED, reason)
            case Resume(reason=reason):
                yield ResumeConfig(config, reason)
    if not verdicts:
        for name, proposal in zip(fresh_names(state.configs), search.propose(outlook), strict=False):
            yield _created(state, plan, name, proposal)


def _created(state: State, plan: Plan, name: str, proposal: Proposal) -> CreateConfig:
    if proposal.parent is None:
        new = Config(name, proposal.hparams, parent=plan.start, origin=proposal.origin)
        return CreateConfig(born(new))
    parent = state.configs[proposal.parent]
    return CreateConfig(child(parent, name, proposal.hparams, proposal.origin), parent.revision)
