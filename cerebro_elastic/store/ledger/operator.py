"""What people ask for happens at once, whoever leads the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.core.history.lineage import born, child, fresh_names, may_end
from cerebro_elastic.core.model.configs import BY_HAND, Config, HParams, Status
from cerebro_elastic.core.model.events import ConfigEnded, ConfigResumed, Event
from cerebro_elastic.errors import RunError, TxnUnknown
from cerebro_elastic.store.client.base import Compare, Op, Put, absent
from cerebro_elastic.store.ledger.changes import config_changed, created, value_of
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.words import counted


class OperatorVerbs(Record):
    """What a person does to a run's record."""

    def stop(self, name: str, reason: str) -> Config | None:
        """Stop a config for good: the search will not resume it. The config as it is then (one that has ended
        otherwise stays as it is), ``None`` if there is none or the run has ended."""
        event = ConfigEnded(0, name, Status.STOPPED, reason, by_hand=True)
        return self._by_hand(name, event, lambda config: may_end(config, event))

    def resume(self, name: str, reason: str) -> Config | None:
        """Let a stopped config go on to its end: the search will not stop it. The answer is as ``stop``'s."""
        event = ConfigResumed(0, name, reason, by_hand=True)
        return self._by_hand(name, event, lambda config: config.status is Status.STOPPED)

    def clone(
        self,
        name: str,
        hparams: HParams,
        start: Callable[[Config], Config | None] = lambda parent: parent,
    ) -> Config | None:
        """Add a config with the hyper-parameters of the config ``name`` but for ``hparams``. It goes on from
        where ``start`` says, given the parent as it stands: from the same place, or another at which a
        checkpoint of the parent is kept, or from the beginning (``None``). The new config; ``None`` if there
        is no such parent or the run has ended. Raises ``RunError`` if all epochs are done where it would
        start."""
        while True:
            state = self.state()
            parent = state.configs.get(name)
            if parent is None or state.plan is None or state.outcome is not None:
                return None
            at = start(parent)
            if at is not None and at.epoch >= state.plan.epochs:
                raise RunError(
                    f"config {name} has done {counted(at.epoch, 'epoch')} there, all it has: nothing is left "
                    "for a clone: clone it from the beginning or an earlier epoch, or another config"
                )
            new, changed = next(fresh_names(state.configs)), {**parent.hparams, **hparams}
            made = child(at, new, changed, BY_HAND) if at else Config(new, changed, origin=BY_HAND)
            config = replace(made, by_hand=True)
            try:
                if self._ask(*created(self.keys, config, parent.revision)):
                    return self.config(new)
            except TxnUnknown:
                known = self.config(new)
                if known is not None and known.by_hand and born(known) == born(config):
                    return known

    def _by_hand(
        self, name: str, event: ConfigEnded | ConfigResumed, possible: Callable[[Config], bool]
    ) -> Config | None:
        while True:
            config = self.config(name)
            if config is None or self.ended():
                return None
            if not possible(config):
                return config
            with suppress(TxnUnknown):
                self._ask(*config_changed(self.keys, config, event))

    def _ask(self, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> bool:
        """Do what a person asks for, while the run goes on; ``end_run`` will know."""
        last = Put(self.keys.control, value_of(event))
        return self._do([absent(self.keys.outcome), *guard], [*ops, last], event) is not None
