"""Deletes checkpoints that no config needs any more, and the remains of killed and refused attempts.

The rank that makes a checkpoint superfluous deletes it. The files' names identify their attempts:
``<epoch>-<k>-<token>``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
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


def _up_to(last: Visit, visits: Iterable[Visit]) -> list[Visit]:
    """A config's visits without those behind the ``last`` one."""
    end = (last.unit.epoch, last.index_in_epoch)
    return [visit for visit in visits if (visit.unit.epoch, visit.index_in_epoch) <= end]


def _is_of_another(ours: str, name: str) -> bool:
    return not name.startswith(ours)


def _place(visit: Visit) -> str:
    """What the names of all attempts at the visit begin with."""
    return name_of(visit.unit.epoch, visit.index_in_epoch, 0)[:-1]


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has saved its unit."""

    visit: Visit
    """Its visit."""
    config: Config
    """The config before that visit."""
    refused: bool = False
    """Whether the visit was not committed."""


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

    def collect(self, attempts: Sequence[Ended]) -> None:
        """Behind these ``attempts``, in the order of their ends: delete the files of refused ones. Behind
        commits delete the configs' checkpoints that are not to be kept, and the logs of other attempts at
        the same visits."""
        committed: dict[str, list[Ended]] = {}
        for ended in attempts:
            if ended.refused:
                self._delete_own(ended.visit)
            else:
                committed.setdefault(ended.config.id, []).append(ended)
        parents = self._record.parents() if committed else frozenset()
        for config, own in committed.items():
            try:
                kept = self._kept(own, lends=config in parents)
            except ForeignValue as error:  # the config's next visit deletes the remains of this one
                self._log.warning("nothing is deleted", why=str(error))
            else:
                self._delete_others([ended.visit for ended in own], kept)

    def _delete_own(self, visit: Visit) -> None:
        """Delete the files of a refused visit."""
        config, ours = visit.unit.config, name_of(visit.unit.epoch, visit.index_in_epoch, visit.attempt)
        self._delete(f"checkpoints/{config}", lambda name: name == ours)
        self._delete(f"logs/{config}/{ours}.*", lambda _name: True)

    def _delete_others(self, visits: Sequence[Visit], kept: Collection[str]) -> None:
        """Delete a config's checkpoints up to the last of these ``visits``, but not the ``kept`` ones; and
        the logs of other attempts at these visits."""
        config, last = visits[-1].unit.config, _place(visits[-1])
        self._delete(f"checkpoints/{config}", lambda name: name[: len(last)] <= last and name not in kept)
        for place, ours in {_place(visit): f"{_place(visit)}{visit.attempt}." for visit in visits}.items():
            self._delete(f"logs/{config}/{place}*", partial(_is_of_another, ours))

    def _kept(self, attempts: Sequence[Ended], *, lends: bool) -> frozenset[str]:
        """The names of a config's checkpoints to keep behind these attempts. ``lends``: whether any were lent
        to children."""
        config, visits = attempts[0].config, [ended.visit for ended in attempts]
        history = self._histories[config.id] = self._history(config, visits)
        urls = history.kept(self._objective, epochs=self._keeps_epochs)
        urls |= self._lent_to_children(config.id) if lends else frozenset()
        return frozenset(PurePosixPath(url).name for url in urls)

    def _history(self, before: Config, visits: Sequence[Visit]) -> ConfigHistory:
        """The history, up to the last of this rank's new ``visits``, of a config that was as ``before`` them.
        Between them may be those of other nodes."""
        known = self._histories.get(before.id)
        if known is None and visits[0].input == born(before).head:
            known = ConfigHistory(born(before))
        history = known and self._grown(known, visits)
        if history is not None:
            return history
        # None is known yet, or the store was reset since.
        read = _up_to(visits[-1], self._record.visits_of(before.id))
        return ConfigHistory.of(before, read, self._plan)

    def _grown(self, history: ConfigHistory, visits: Sequence[Visit]) -> ConfigHistory | None:
        """The history up to the last of these visits; ``None`` if it does not lead there."""
        config, last = history.config, visits[-1]
        epoch, place = config.epoch, position(config)
        heads = [config.head, *(visit.output for visit in visits[:-1])]
        first = visits[0]
        if (first.unit.epoch, first.index_in_epoch) != (epoch, place) or heads != [v.input for v in visits]:
            epochs = range(epoch, last.unit.epoch + 1)
            read = [visit for e in epochs for visit in self._record.visits_of(config.id, e)]
            visits = _up_to(last, [v for v in read if (v.unit.epoch, v.index_in_epoch) >= (epoch, place)])
        if not visits or visits[0].input != config.head or visits[-1].attempt != last.attempt:
            return None
        return reduce(lambda grown, visit: grown.after(visit, self._plan), visits, history)

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
