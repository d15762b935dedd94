"""Deletes checkpoints that no config needs any more, and what killed and refused attempts have left.

The rank that makes a checkpoint superfluous deletes it. The files' names say whose they are:
``<epoch>-<k>-<token>``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from cerebro_elastic.checkpoint.retention import KeptCheckpoints
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.model.attempts import Visit
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
    """The name of what an attempt writes as visit ``k`` of an epoch; its token makes the name its own."""
    return f"{epoch:05d}-{k:05d}-{token}"


class CheckpointCollector:
    """Deletes below the URL ``storage``. It remembers what each config keeps, so that it reads each visit
    once."""

    def __init__(self, record: Record, storage: str, plan: Plan, recipe: Recipe, log: EventLog) -> None:
        self._record = record
        self._storage = storage
        self._empty = KeptCheckpoints(plan, recipe.objective.metric, recipe.objective.mode)
        self._log = log
        self._shelves: dict[str, KeptCheckpoints] = {}
        self._independent: set[str] = set()

    def committed(self, visit: Visit) -> None:
        """After a commit: delete the config's checkpoints that are not to be kept, and the logs of other
        attempts at this visit."""
        config, place = visit.unit.config, name_of(visit.unit.epoch, visit.index_in_epoch, 0)[:-1]
        try:
            kept = {
                PurePosixPath(url).name for url in self._shelf(visit).kept | self._lent_to_children(config)
            }
        except ForeignValue as error:  # the config's next visit deletes what this one leaves
            self._log.warning("nothing is deleted", why=str(error))
            return
        self._delete(f"checkpoints/{config}", lambda name: name[: len(place)] <= place and name not in kept)
        ours = name_of(visit.unit.epoch, visit.index_in_epoch, visit.attempt)
        self._delete(f"logs/{config}/{place}*", lambda name: not name.startswith(f"{ours}."))

    def refused(self, visit: Visit) -> None:
        """After a refused commit: delete what the attempt has written."""
        config, ours = visit.unit.config, name_of(visit.unit.epoch, visit.index_in_epoch, visit.attempt)
        self._delete(f"checkpoints/{config}", lambda name: name == ours)
        self._delete(f"logs/{config}/{ours}.*", lambda _name: True)

    def _shelf(self, visit: Visit) -> KeptCheckpoints:
        """The config's shelf with all its visits up to this one, those of other nodes too."""
        config = visit.unit.config
        shelf = self._shelves.get(config, self._empty)
        if config not in self._shelves:
            visits = []
        elif shelf.at.head == visit.input and _place(shelf) == (visit.unit.epoch, visit.index_in_epoch):
            visits = [visit]  # this rank has made the one before it, too
        else:
            visits = self._since(config, shelf, visit.unit.epoch)
        if not visits or visits[0].input != shelf.at.head or visits[-1].attempt != visit.attempt:
            # None is known yet, or the store has gone back since.
            shelf, visits = self._empty_of(config), self._record.visits_of(config)
        for recorded in visits:
            shelf = shelf.put(recorded)
        self._shelves[config] = shelf
        return shelf

    def _empty_of(self, config: str) -> KeptCheckpoints:
        known = self._record.config(config)
        return replace(self._empty, at=born(known)) if known and known.parent else self._empty

    def _lent_to_children(self, config: str) -> frozenset[str]:
        """The URLs of the config's checkpoints that its children still need: those with which they began,
        until they have written two checkpoints themselves."""
        urls = set()
        for child, edge in self._record.children(config).items():
            if child not in self._independent:
                trained = {v.output.url for v in self._record.visits_of(child) if v.unit.phase is Phase.TRAIN}
                if len(trained) < 2:
                    urls.add(edge.checkpoint.url)
                else:
                    self._independent.add(child)
        return frozenset(urls)

    def _since(self, config: str, shelf: KeptCheckpoints, epoch: int) -> list[Visit]:
        at = _place(shelf)
        epochs = range(shelf.at.epoch, epoch + 1)
        visits = [visit for number in epochs for visit in self._record.visits_of(config, number)]
        return [visit for visit in visits if (visit.unit.epoch, visit.index_in_epoch) >= at]

    def _delete(self, folder: str, drop: Callable[[str], bool]) -> None:
        """A failure costs space, and does not end the run."""
        url = f"{self._storage}/{folder}"
        try:
            with translated(CheckpointError, f"cannot delete in {url}"):
                for place in expand(locate(url), lambda _path: True):
                    if drop(PurePosixPath(place.path).name):
                        files.remove(place)
        except CerebroError as error:
            self._log.warning("cannot delete what is superfluous", why=str(error))


def _place(shelf: KeptCheckpoints) -> tuple[int, int]:
    """The epoch and the place in it of the visit that the shelf lacks next."""
    return shelf.at.epoch, position(shelf.at)
