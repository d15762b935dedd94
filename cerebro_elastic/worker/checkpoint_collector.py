"""Deletes checkpoints that no config needs any more, and the remains of killed and refused attempts.

The rank that makes a checkpoint superfluous deletes it. The files' names identify their attempts:
``<epoch>-<k>-<token>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import PurePosixPath

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.history.view import ConfigHistory
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import CerebroError, CheckpointError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.store.ledger.foreign import ForeignValue
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system import files
from cerebro_elastic.system.files import expand, locate, translated
from cerebro_elastic.system.logs import EventLog


def name_of(epoch: int, k: int, token: int) -> str:
    """The name of an attempt's checkpoint as visit ``k`` of an epoch; its token makes the name unique."""
    return f"{epoch:05d}-{k:05d}-{token}"


class CheckpointCollector:
    """Deletes below the URL ``storage``. It remembers the checkpoints that each config keeps, so that it
    reads each visit once."""

    def __init__(self, record: Record, storage: str, plan: Plan, recipe: Recipe, log: EventLog) -> None:
        self._record = record
        self._storage = storage
        self._plan = plan
        self._objective = recipe.objective
        self._keeps_epochs = recipe.keep == "epochs"
        self._log = log
        self._histories: dict[str, ConfigHistory] = {}
        self._independent: set[str] = set()

    def committed(self, visit: Visit, before: Config) -> None:
        """After a commit: delete the config's checkpoints that are not to be kept, and the logs of other
        attempts at this visit. The config was as ``before`` it."""
        config, place = before.id, name_of(visit.unit.epoch, visit.index_in_epoch, 0)[:-1]
        try:
            history = self._histories[config] = self._history(visit, before)
            urls = history.kept(self._objective, epochs=self._keeps_epochs)
            kept = {PurePosixPath(url).name for url in urls | self._lent_to_children(config)}
        except ForeignValue as error:  # the config's next visit deletes the remains of this one
            self._log.warning("nothing is deleted", why=str(error))
            return
        self._delete(f"checkpoints/{config}", lambda name: name[: len(place)] <= place and name not in kept)
        ours = name_of(visit.unit.epoch, visit.index_in_epoch, visit.attempt)
        self._delete(f"logs/{config}/{place}*", lambda name: not name.startswith(f"{ours}."))

    def refused(self, visit: Visit) -> None:
        """After a refused commit: delete the attempt's files."""
        config, ours = visit.unit.config, name_of(visit.unit.epoch, visit.index_in_epoch, visit.attempt)
        self._delete(f"checkpoints/{config}", lambda name: name == ours)
        self._delete(f"logs/{config}/{ours}.*", lambda _name: True)

    def _history(self, visit: Visit, before: Config) -> ConfigHistory:
        """The config's history with all its visits up to this one, those of other nodes too."""
        known = self._histories.get(before.id)
        if known is None and visit.input == born(before).head:
            known = ConfigHistory(born(before))
        history = known and self._grown(known, visit)
        if history is not None:
            return history
        # None is known yet, or the store was reset since.
        return ConfigHistory.of(before, _up_to(visit, self._record.visits_of(before.id)), self._plan)

    def _grown(self, history: ConfigHistory, visit: Visit) -> ConfigHistory | None:
        """The history up to this visit; ``None`` if it does not lead there."""
        epoch, place = history.config.epoch, position(history.config)
        visits = [visit]  # if this rank has made the one before it, too
        if visit.input != history.config.head or (visit.unit.epoch, visit.index_in_epoch) != (epoch, place):
            epochs = range(epoch, visit.unit.epoch + 1)
            read = _up_to(visit, [v for e in epochs for v in self._record.visits_of(visit.unit.config, e)])
            visits = [other for other in read if (other.unit.epoch, other.index_in_epoch) >= (epoch, place)]
        if not visits or visits[0].input != history.config.head or visits[-1].attempt != visit.attempt:
            return None
        return reduce(lambda grown, other: grown.after(other, self._plan), visits, history)

    def _lent_to_children(self, config: str) -> frozenset[str]:
        """The URLs of the config's checkpoints that its children still need: their initial ones, until they
        have written two checkpoints themselves."""
        urls = set()
        for child, edge in self._record.children(config).items():
            if child not in self._independent:
                trained = {v.output.url for v in self._record.visits_of(child) if v.unit.phase is Phase.TRAIN}
                if len(trained) < 2:
                    urls.add(edge.checkpoint.url)
                else:
                    self._independent.add(child)
        return frozenset(urls)

    def _delete(self, folder: str, drop: Callable[[str], bool]) -> None:
        """A failure costs space, and does not end the run."""
        url = f"{self._storage}/{folder}"
        try:
            with translated(CheckpointError, f"cannot delete in {url}"):
                for place in expand(locate(url), lambda _path: True):
                    if drop(PurePosixPath(place.path).name):
                        files.remove(place)
        except CerebroError as error:
            self._log.warning("cannot delete superfluous checkpoints", why=str(error))


def _up_to(last: Visit, visits: Iterable[Visit]) -> list[Visit]:
    """A config's visits without those behind the ``last`` one."""
    end = (last.unit.epoch, last.index_in_epoch)
    return [visit for visit in visits if (visit.unit.epoch, visit.index_in_epoch) <= end]
