"""Operators' writes to a run's record: they open the run and extend it, and stop, resume and clone
configs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from cerebro_elastic.core.history.lineage import born, edge_from, fresh_names, number_of
from cerebro_elastic.core.history.members import by_config, member, named
from cerebro_elastic.core.history.progress import units_done
from cerebro_elastic.core.history.rows import Writer
from cerebro_elastic.core.model.configs import BY_HAND, Config, HParams, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigMeasured,
    ConfigResumed,
    Event,
    RunExtended,
    RunOpened,
)
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Measurement
from cerebro_elastic.errors import IllegalEvent, RunError, SameConfig, TxnUnknown
from cerebro_elastic.store.client.base import Put, absent, at_revision
from cerebro_elastic.store.ledger.foreign import value_in
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import value_of, write
from cerebro_elastic.system.words import counted


@dataclass(frozen=True, slots=True)
class Allowance:
    """The budget of an agent, a program that proposes configs. The spent part is read from the record, so it
    is the same for all processes of the agent."""

    agent: str
    """The agent's name, for the record."""
    configs: int
    """How many configs it may add."""
    units: int | None = None
    """How many units these may train in all; ``None``: any number."""

    def used(self, configs: Iterable[Config], plan: Plan) -> tuple[int, int]:
        """How many configs of a run the agent has added, and how many units these have trained or, while
        they are live, will have. One that has several trainings is one config."""
        own = [config for config in configs if config.origin.get("agent") == self.agent]
        return len(by_config(own)), sum(_units(config, plan) for config in own)

    def check(self, trainings: Iterable[Config], configs: Iterable[Config], plan: Plan) -> None:
        """Raise ``RunError`` unless the agent may add a config with these ``trainings`` to the run's
        ``configs``."""
        added, booked = self.used(configs, plan)
        if added >= self.configs:
            raise RunError(
                f"the budget is used up: {self.agent} may add {counted(self.configs, 'config')} to this run, "
                f"and has added {added}; the person who started the server can raise it with --configs"
            )
        units = sum(_units(config, plan) for config in trainings)
        if self.units is not None and booked + units > self.units:
            raise RunError(
                f"the budget does not reach: the config takes {counted(units, 'unit')}, and {self.agent} may "
                f"add {max(0, self.units - booked)} more of {self.units}; stop one that it has added, or "
                "clone one that is nearer to its end"
            )


def _units(config: Config, plan: Plan) -> int:
    """How many training units a config itself has done or, if it is live, will have."""
    end = plan.epochs * plan.trained if config.status is Status.LIVE else units_done(config, plan)
    return end - units_done(born(config), plan)


@dataclass(frozen=True)
class OperatorLedger:
    """The verbs of an operator. Each is sent again when its answer was lost, and takes effect once."""

    record: Record

    def open_run(self, spec: Spec) -> bool:
        """Write the run's spec. Guard: the run has none. Event: ``RunOpened``. Returns ``False`` if the run
        exists, perhaps by an earlier try of ours whose answer was lost."""
        record, event, values = self.record, RunOpened(0, spec.plan), {self.record.keys.spec: spec}
        while True:
            with suppress(TxnUnknown):
                return write(record, Writer.OPERATOR, State(), event, [], values=values) is not None

    def replace_spec(self, spec: Spec) -> None:
        """Write the spec of a run that continues with changed code. No event, for the plan stays."""
        store, key, value = self.record.store, self.record.keys.spec, value_of(spec)
        while (known := store.get(key)) is not None and known.value != value:
            with suppress(TxnUnknown):
                store.txn([at_revision(key, known.mod_revision)], [Put(key, value)])

    def extend_run(self, before: Spec, after: Spec) -> bool:
        """Let a run that has ended continue by the spec ``after``, whose last extension lists the changes.

        Guard: the run has ended, and its spec is ``before``. Event: ``RunExtended``.

        Returns:
            ``False`` if the run has not ended, or was extended meanwhile.
        """
        record, store, keys = self.record, self.record.store, self.record.keys
        event, values = RunExtended(0, after.extensions[-1]), {keys.spec: after}
        tried = False
        while True:
            state, spec, outcome = record.state(), store.get(keys.spec), store.get(keys.outcome)
            known = value_in(spec, keys, Spec) if spec is not None else None
            if spec is None or outcome is None or state.outcome is None or known != before:
                return tried and known == after
            guard = [
                at_revision(keys.spec, spec.mod_revision),
                at_revision(keys.outcome, outcome.mod_revision),
            ]
            try:
                if write(record, Writer.OPERATOR, state, event, guard, values=values) is not None:
                    return True
            except TxnUnknown:
                tried = True

    def measure(self, found: Measurement) -> bool:
        """Record a config's values on the test set as the run's next measurement.

        Guard: the run has ended, and was not continued since its state was read. Event: ``ConfigMeasured``.

        Returns:
            ``False`` if the run is live.
        """
        record, keys = self.record, self.record.keys
        while True:
            state, outcome = record.state(), record.store.get(keys.outcome)
            if found in (replace(known, number=found.number) for known in state.measured):
                return True  # by an earlier try of ours
            if outcome is None or state.outcome is None:
                return False
            event = ConfigMeasured(0, replace(found, number=len(state.measured)))
            guard = [at_revision(keys.outcome, outcome.mod_revision)]
            with suppress(TxnUnknown):
                if write(record, Writer.OPERATOR, state, event, guard) is not None:
                    return True

    def release_nodes(self) -> None:
        """End the quarantine of all nodes: the operator has removed the fault. Event: ``NodeReleased``, by
        the end of each lease."""
        for item in self.record.store.range(self.record.keys.quarantined("")).items:
            self.record.store.revoke(item.lease)

    def stop(self, name: str, reason: str) -> Config | None:
        """Stop a config for good: the search will not resume it.

        Guard: the run is live, and the config is at the revision that was read. Event: ``ConfigEnded``.

        Returns:
            The config as it is then; one that has ended otherwise stays as it is. ``None`` if the run has no
            such config or has ended.
        """
        return self._change(name, ConfigEnded(0, name, Status.STOPPED, reason, by_hand=True))

    def resume(self, name: str, reason: str) -> Config | None:
        """Let a stopped config continue to its end: the search will not stop it. Or have a failed one tried
        again: the search treats it as before. Guard and answer are ``stop``'s. Event: ``ConfigResumed``."""
        return self._change(name, ConfigResumed(0, name, reason, by_hand=True))

    def clone(
        self,
        name: str,
        hparams: HParams,
        start: Callable[[Config], Config | None] = lambda parent: parent,
        reason: str = "",
        allowance: Allowance | None = None,
        without: Collection[str] = (),
    ) -> Config | None:
        """Add a config with the hyper-parameters of the config ``name``, changed by ``hparams``; with several
        trainings, if that has several.

        Guard: the run is live, and each parent is at the revision that was read. Event: ``ConfigCreated``.

        Args:
            name: The config, as a person sees it. It is the parent, or each of its trainings is one.
            hparams: The hyper-parameters that differ.
            start: Where the clone continues, given the present parent: the parent itself, the parent as it
                was at another checkpoint that is kept, or ``None`` for the beginning.
            reason: Why, for people.
            allowance: Of the agent that adds it, if one does.
            without: The parent's hyper-parameters that it lacks: those of a branch that it does not take.

        Returns:
            The new config, or the first of its trainings; ``None`` if the run has no such parent or has
            ended.

        Raises:
            RunError: No epoch is left where the clone would start, or the run has the same config already.
        """
        sent: tuple[Config, ...] = ()
        origin = BY_HAND if allowance is None else {**BY_HAND, "agent": allowance.agent}
        while True:
            state = self.record.state()
            known = [state.configs[config.id] for config in sent if config.id in state.configs]
            if known and all(map(_is, known, sent)):
                return known[0]
            parents, plan = named(state.configs, name), state.plan
            if not parents or plan is None or state.outcome is not None:
                return None
            kept = {key: value for key, value in parents[0].hparams.items() if key not in without}
            new, configs = next(fresh_names(map(number_of, state.configs))), []
            for parent in parents:
                at = start(parent)
                if at is not None and at.epoch >= plan.epochs:
                    raise RunError(
                        f"config {parent.id} has done {counted(at.epoch, 'epoch')} there, all it has: "
                        "nothing is left for a clone: clone it from the beginning or an earlier epoch, or "
                        "another config"
                    )
                config = member(new, {**kept, **hparams}, parent.fold, parent.repeat, plan)
                config = born(replace(config, parent=edge_from(at) if at else None, origin=origin))
                _check_new(config, at, state)
                configs.append(replace(config, by_hand=True, reason=reason))
            if allowance is not None:
                allowance.check(configs, state.configs.values(), plan)
            try:
                if self._ask(state, ConfigCreated(0, configs[0], tuple(configs[1:]))):
                    return self.record.config(configs[0].id)
            except TxnUnknown:
                sent = tuple(configs)

    def _change(self, name: str, event: ConfigEnded | ConfigResumed) -> Config | None:
        while True:
            config = self.record.config(name)
            if config is None or self.record.ended():
                return None
            try:
                if self._ask(State(configs={name: config}), event):
                    return self.record.config(name)
            except IllegalEvent:
                return config
            except TxnUnknown:
                continue

    def _ask(self, seen: State, event: Event) -> int | None:
        """As long as the run is live. The key ``control`` lets the leader, who ends the run, see the
        request."""
        record, keys = self.record, self.record.keys
        run_goes_on = absent(keys.outcome)
        return write(record, Writer.OPERATOR, seen, event, [run_goes_on], values={keys.control: event})


def _is(known: Config, sent: Config) -> bool:
    """Whether a config of the run is the one that was ``sent``, and not another person's."""
    return known.by_hand and known.reason == sent.reason and born(known) == born(sent)


def _check_new(config: Config, at: Config | None, state: State) -> None:
    """Raise ``RunError`` if a config of the run has the same hyper-parameters and the same beginning, or is
    the config ``at`` whose state is copied: both would have the same weights."""
    for other in state.configs.values():
        same_beginning = other.parent == config.parent or (at is not None and other.id == at.id)
        alike = (other.fold, other.repeat) == (config.fold, config.repeat)
        if alike and same_beginning and other.hparams == config.hparams:
            known = other.seen_as
            others = {Status.STOPPED: f", or resume {known}", Status.FAILED: f", or try {known} again"}
            raise SameConfig(
                f"{known} is this config already ({other.status.value}): it has the same hyper-parameters "
                "and the same beginning, so another one would be trained to the same weights. Change a "
                f"hyper-parameter{others.get(other.status, '')}",
                known,
            )
