"""Sweeping: what no config needs any more is deleted by the rank that made it superfluous, and with it what
attempts that were killed or refused have left. Names tell: ``<epoch>-<k>-<token>``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from cerebro_elastic import files
from cerebro_elastic.checkpoint.retention import Shelf
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import CerebroError, CheckpointError
from cerebro_elastic.files import expand, locate, translated
from cerebro_elastic.logs import EventLog
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.store.ledger.foreign import ForeignValue
from cerebro_elastic.store.ledger.record import Record


def name_of(epoch: int, k: int, token: int) -> str:
    """What an attempt writes at this place of a config's visits; the token makes it this attempt's own."""
    return f"{epoch:05d}-{k:05d}-{token}"


class CheckpointCollector:
    """Deletes below the URL ``storage``. It remembers of each config what is to be kept, so that it reads
    each visit once."""

    def __init__(self, record: Record, storage: str, plan: Plan, recipe: Recipe, log: EventLog) -> None:
        self._record = record
        self._storage = storage
        self._empty = Shelf(plan, recipe.objective.metric, recipe.objective.mode)
        self._log = log
        self._shelves: dict[str, Shelf] = {}
        self._weaned: set[str] = set()

    def committed(self, visit: Visit) -> None:
        """Delete the checkpoints up to this visit, the config's last, that are not to be kept, and the logs
        of other attempts at its place."""
        config, place = visit.unit.config, name_of(visit.unit.epoch, visit.k, 0)[:-1]
        try:
            kept = {PurePosixPath(url).name for url in self._shelf(visit).kept | self._lent(config)}
        except ForeignValue as error:  # the config's next visit deletes what this one leaves
            self._log.warning("nothing is deleted", why=str(error))
            return
        self._delete(f"checkpoints/{config}", lambda name: name[: len(place)] <= place and name not in kept)
        ours = name_of(visit.unit.epoch, visit.k, visit.attempt)
        self._delete(f"logs/{config}/{place}*", lambda name: not name.startswith(f"{ours}."))

    def refused(self, visit: Visit) -> None:
        """Delete what an attempt has written that did not become this visit."""
        config, ours = visit.unit.config, name_of(visit.unit.epoch, visit.k, visit.attempt)
        self._delete(f"checkpoints/{config}", lambda name: name == ours)
        self._delete(f"logs/{config}/{ours}.*", lambda _name: True)

    def _shelf(self, visit: Visit) -> Shelf:
        """The config's shelf with all its visits up to this one, those of other nodes too."""
        config = visit.unit.config
        shelf = self._shelves.get(config, self._empty)
        visits = self._since(config, shelf, visit.unit.epoch) if config in self._shelves else []
        if not visits or visits[0].input != shelf.at.head or visits[-1].attempt != visit.attempt:
            # None is known yet, or the store has gone back since.
            shelf, visits = self._empty_of(config), self._record.visits_of(config)
        for each in visits:
            shelf = shelf.put(each)
        self._shelves[config] = shelf
        return shelf

    def _empty_of(self, config: str) -> Shelf:
        known = self._record.config(config)
        return replace(self._empty, at=born(known)) if known and known.parent else self._empty

    def _lent(self, config: str) -> frozenset[str]:
        """The URLs of the config's checkpoints with which others began that are not weaned: the first two
        that a child writes itself are its last and the one before it."""
        lent = set()
        for child, edge in self._record.children(config).items():
            if child not in self._weaned:
                trained = {v.output.url for v in self._record.visits_of(child) if v.unit.phase is Phase.TRAIN}
                if len(trained) < 2:
                    lent.add(edge.checkpoint.url)
                else:
                    self._weaned.add(child)
        return frozenset(lent)

    def _since(self, config: str, shelf: Shelf, epoch: int) -> list[Visit]:
        at = (shelf.at.epoch, position(shelf.at))
        epochs = range(shelf.at.epoch, epoch + 1)
        visits = [visit for each in epochs for visit in self._record.visits_of(config, each)]
        return [visit for visit in visits if (visit.unit.epoch, visit.k) >= at]

    def _delete(self, folder: str, drop: Callable[[str], bool]) -> None:
        """A failure to do so costs space, not the run."""
        url = f"{self._storage}/{folder}"
        try:
            with translated(CheckpointError, f"cannot delete in {url}"):
                for place in expand(locate(url), lambda _path: True):
                    if drop(PurePosixPath(place.path).name):
                        files.remove(place)
        except CerebroError as error:
            self._log.warning("cannot delete what is superfluous", why=str(error))
