"""A run as one object: what has come of it, what goes on in it, and what people ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from cerebro_elastic.config import A_DAY, DECIDING_SECONDS, GRACE, StoreSettings
from cerebro_elastic.core.history.progress import at_end
from cerebro_elastic.core.history.view import ConfigHistory, RunView
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import RunError, StoreUnavailable, did_you_mean
from cerebro_elastic.recipes import Domain, Objective
from cerebro_elastic.runs import catalog
from cerebro_elastic.runs.attach import events_of, known_spec, live_run, store_of, with_key
from cerebro_elastic.runs.catalog import RunSummary
from cerebro_elastic.runs.folder import RunFolder, default_home, find_run, run_folder
from cerebro_elastic.runs.results.result import RunResult, check_not_all_failed
from cerebro_elastic.search.sampling import misfit
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import JournalReader
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.ownership import distrust_folder
from cerebro_elastic.system.words import for_reader, one_line, option

if TYPE_CHECKING:
    import pandas

    from cerebro_elastic.core.invariants import Violation
    from cerebro_elastic.runs.callbacks import RunCallback
    from cerebro_elastic.runs.comparison import Comparison
    from cerebro_elastic.runs.live import Watcher
    from cerebro_elastic.runs.removal import Kept, Pruning
    from cerebro_elastic.runs.results.export import ExportedConfig
    from cerebro_elastic.runs.results.replay import ReplayedVisit

Phase: TypeAlias = Literal["starting", "running", "ended", "stopped", "failed"]
CloneStart: TypeAlias = Literal["here", "best", "scratch"]
"""Where a clone begins: where its parent stands, at the end of its parent's best epoch, or anew."""

_LOOK_SECONDS = 0.2
"""How often a run that is followed is looked at."""
_PATIENCE = 2.0
"""Seconds after which a store that is silent counts as gone, if its folder may say so."""
_END_SECONDS, _END_PAUSE = 30.0, 0.1


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run.

    Example:
        >>> status = Run.open("sweep").status()
        >>> status.phase, sorted(status.configs)
        ('ended', ['c0000', 'c0001'])
    """

    phase: Phase
    """``starting`` until nodes and configs are registered; ``stopped`` if nobody runs it and it has not
    ended; ``failed`` if this process has run it in the background, and it raised an error."""
    state: State
    """Nodes, configs and what is under way."""
    message: str = ""
    """The last line that a run in the background has reported, or the error with which it failed."""
    head: RecordHead | None = None
    """Where the leader's record ended when it last assigned a unit that is still under way; if none is, where
    the record in the folder ends. ``None`` if that is not known."""

    @property
    def live(self) -> bool:
        """Whether the run goes on."""
        return self.phase in ("starting", "running")

    @property
    def configs(self) -> Mapping[str, Config]:
        """The configs by id, with status, epoch and last metrics."""
        return self.state.configs

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the registered nodes."""
        return tuple(self.state.nodes)


class Run:
    """A run, live or ended, on this machine or on others.

    ``Run.open`` finds one, and ``run(..., wait=False)`` starts one in the background of this process. Such a
    run is led by a thread, so that a recipe may have Python objects and callbacks see yours; its nodes are
    processes of their own, as always. As a context manager it is stopped with its block if it has not ended,
    as by Ctrl-C, and so it is when this process exits. What was committed is safe, and the same call of
    ``run`` goes on with it.

    What stops, resumes, clones, drains and ends needs a live run. Each is one transaction, is recorded in the
    history, and takes effect at once. The search leaves the configs alone that a person has decided on.

    Example:
        >>> with run("sweep.yaml", run_id="background", wait=False) as background:
        ...     phase = background.status().phase
        ...     result = background.wait()
        >>> phase
        'starting'
        >>> background.status().phase
        'ended'
        >>> result.best.status
        <Status.FINISHED: 'finished'>
    """

    in_background: ClassVar[dict[Path, Run]] = {}
    """The runs that this process has in the background, or had, by folder."""

    def __init__(self, folder: RunFolder, store: StoreSettings | None = None) -> None:
        self.folder = folder
        """Its folder on this machine, which need not exist if the run has a ``store``."""
        self.store = store and with_key(store, folder.run, folder.path.parent)
        """The etcd of a run of other machines; ``None``: the run is that of its folder."""

    @classmethod
    def open(
        cls, run: str | Path, *, home: str | Path | None = None, store: StoreSettings | None = None
    ) -> Run:
        """Open a run, live or ended.

        Args:
            run: The run's id, or its folder.
            home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
            store: The etcd of a run of other machines.

        Raises:
            RunError: No such run; the message lists the known ones.

        Example:
            >>> Run.open("sweep").result.config("c0001").status
            <Status.FINISHED: 'finished'>
        """
        if store is not None:
            return cls(run_folder(str(run), home), store)
        place = Path(home).expanduser() if home is not None else default_home()
        for path in (Path(run), place / run):
            if (background := cls.in_background.get(path.resolve())) is not None:
                return background
        return cls(find_run(run, place))

    @staticmethod
    def all(home: str | Path | None = None, *, tags: Sequence[str] = ()) -> Sequence[RunSummary]:
        """All runs of a home, the one whose record changed last first.

        Args:
            home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
            tags: Only the runs that have all of these.
        """
        return catalog.summaries(home, tags)

    def __repr__(self) -> str:
        return f"<Run {self.id!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def id(self) -> str:
        """The run's id. A folder may have another name than its run: a machine that joined has one beside
        it."""
        if self.store is not None or not self.folder.spec.exists():
            return self.folder.run
        return self.folder.read_spec().plan.run

    @property
    def spec(self) -> Spec:
        """What the run is made from."""
        if self.store is None:
            return self.folder.read_spec()
        with closing(EtcdStore(self.store)) as store:
            return known_spec(Record(store, self.id, self.store.run_key), self.store)

    @property
    def result(self) -> RunResult:
        """The results so far, read from the record."""
        return RunResult(self.folder, self.store)

    @property
    def view(self) -> RunView:
        """The run after all that has happened so far."""
        return self.result.view

    def status(self) -> RunStatus:
        """The present status: from the store if the run is live, else from its record."""
        if self.store is not None:
            return self._status_in(self.store)
        folder = self.folder
        if folder.endpoint.exists() and not distrust_folder(folder.path):  # of others', the record is enough
            try:
                return self._status_in(replace(store_of(folder), patience=_PATIENCE))
            except StoreUnavailable:
                if folder.is_locked():
                    raise
                # The process that took part here was killed.
        result = self.result
        # Nodes that were killed are still in the record.
        state = replace(result.view.state, nodes={}, attempts={}, queued={}, leader=None)
        return RunStatus(phase_of(state, live=False), state, head=result.head)

    def _status_in(self, settings: StoreSettings) -> RunStatus:
        with closing(EtcdStore(settings)) as store:
            record = Record(store, self.id, settings.run_key)
            known_spec(record, settings)
            state = record.state()
        heads = [attempt.record for attempt in state.underway() if attempt.record is not None]
        head = max(heads, key=lambda head: head.revision, default=None)
        if head is None and self.store is None:
            head = self.result.head
        return RunStatus(phase_of(state, live=state.outcome is None), state, head=head)

    def follow(self) -> Iterator[RunView]:
        """Follow the run until it has ended, or nobody on this machine runs it any more.

        Yields:
            The run's view: at once with all that has happened so far, and then several times a second with
            what has been added, if anything has.

        Example:
            >>> [len(view.log) for view in Run.open("sweep").follow()][-1]
            8
        """
        view = RunView()
        for events in self._events():
            for event in events:
                view.take(event)
            yield view
            if view.state.outcome is not None:
                return

    def _events(self) -> Iterator[Sequence[Event]]:
        """The events so far, and then those of each moment."""
        if self.store is None:
            reader = JournalReader(self.folder.history)
            while True:
                runs = self.folder.is_locked()
                yield list(reader.new_events())
                if not runs:
                    return
                time.sleep(_LOOK_SECONDS)
        with closing(EtcdStore(self.store)) as store:
            record = Record(store, self.id, self.store.run_key)
            known_spec(record, self.store)
            events = events_of(record)
            yield events
            with record.events(events[-1].revision + 1 if events else 1) as stream:
                while True:
                    yield stream.next(_LOOK_SECONDS)

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait for the run's end and return its result.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: The run has not ended by then; it goes on.
            RunFailed: It has ended, and all its configs failed.
            RunError: Nobody runs it any more, and it has not ended.
            Exception: What a run in the background, or one of its callbacks, has raised.
        """
        until = None if timeout is None else time.monotonic() + timeout
        view = RunView()
        for view in self.follow():
            if view.state.outcome is None and until is not None and time.monotonic() >= until:
                raise TimeoutError(f"run {self.id!r} has not ended within {timeout:g} s; it goes on")
        if view.state.outcome is None:
            raise RunError(
                f"run {self.id!r} has not ended, and nobody runs it on this machine: the command that "
                "started it goes on with it"
            )
        return check_not_all_failed(self.result)

    def close(self) -> None:
        """Stop a run in the background of this process, if it has not ended, and wait until nothing of it is
        left here. While the recipe is being checked, that takes until the check's end. A run that goes on
        elsewhere is not touched."""

    def stop(self, config: str, *, reason: str = "stopped by hand") -> Config:
        """Stop a config. The unit that it is in does not count; all it has committed stays.

        Args:
            config: The config's id.
            reason: Why, for the record.

        Returns:
            The config as it is now.

        Raises:
            RunError: The run is not live, or has no such config that could be stopped.

        Example:
            >>> Run.open("live").stop("c0001", reason="diverges").status
            <Status.STOPPED: 'stopped'>
        """
        with live_run(*self.live_place()) as (record, _):
            stopped = _known(record, config, OperatorLedger(record).stop(config, reason))
            if stopped.status is not Status.STOPPED:
                status = stopped.status.value
                raise RunError(f"config {config!r} is {status} already: only a live one can be stopped")
            return stopped

    def resume(self, config: str, *, reason: str = "resumed by hand") -> Config:
        """Let a config, stopped by a person or the search, continue to its end. It begins the unit again in
        which it was stopped.

        Args:
            config: The config's id.
            reason: Why, for the record.

        Returns:
            The config as it is now.

        Raises:
            RunError: The run is not live, or has no such config that could go on.

        Example:
            >>> Run.open("live").resume("c0001").status
            <Status.LIVE: 'live'>
        """
        with live_run(*self.live_place()) as (record, _):
            known = _known(record, config, record.config(config))
            if known.status is Status.LIVE:
                raise RunError(f"config {config!r} is live: only a stopped one can be resumed")
            if known.status is Status.FAILED:
                again = for_reader(f"cerebro retry {self.id} {config}", f"Run.retry([{config!r}])")
                raise RunError(f"config {config!r} has failed: to have it tried again: {again}")
            resumed = _known(record, config, OperatorLedger(record).resume(config, reason))
            if resumed.status is not Status.LIVE:
                raise RunError(f"config {config!r} is {resumed.status.value}: only a stopped one can go on")
            return resumed

    def clone(
        self,
        config: str,
        hparams: Mapping[str, Any] | None = None,
        *,
        start: CloneStart = "here",
        reason: str = "",
    ) -> Config:
        """Add a config: like another one, except for some hyper-parameters. The unit that the other one is in
        goes on.

        Args:
            config: The id of the config to clone, the parent.
            hparams: The hyper-parameters that differ.
            start: ``here``: the clone goes on where the parent stands; ``best``: at the end of the parent's
                best epoch; ``scratch``: it begins anew.
            reason: Why, for the record.

        Returns:
            The new config.

        Raises:
            RunError: The run is not live, has no such config, hyper-parameter or checkpoint, or has a config
                with the same hyper-parameters and the same beginning: the message names it.

        Example:
            >>> Run.open("live").clone("c0000", {"lr": 0.01}, start="scratch").hparams
            {'lr': 0.01}
        """
        changed = dict(hparams or {})
        with live_run(*self.live_place()) as (record, spec):
            parent = _known(record, config, record.config(config))
            _check_changes(config, parent, changed, spec.recipe.get("search", {}).get("space", {}))
            begins: Mapping[str, Callable[[Config], Config | None]] = {
                "here": lambda parent: parent,
                "best": lambda parent: _at_best(record, spec, parent),
                "scratch": lambda _parent: None,
            }
            return _known(
                record, config, OperatorLedger(record).clone(config, changed, begins[start], reason)
            )

    def add(
        self, hparams: Mapping[str, Any], *, like: str | None = None, reason: str = "added by hand"
    ) -> Config:
        """Add a config that is trained from scratch. In the record it is a clone of another config.

        Args:
            hparams: Its hyper-parameters.
            like: The id of the config that has the others; without it ``hparams`` must name all.
            reason: Why, for the record.

        Returns:
            The new config.

        Raises:
            RunError: The run is not live, has no such config or hyper-parameter, or no config yet.
        """
        if like is None:
            configs = self.status().configs
            like = next(iter(configs), None)
            if like is None:
                raise RunError(f"run {self.id!r} has no config yet: add one once it has")
            if missing := sorted(set(configs[like].hparams) - set(hparams)):
                values = ", ".join(missing)
                raise RunError(
                    f"the new config lacks {values}: give all hyper-parameters, or name a config that has "
                    f"the others with {option('like')}"
                )
        return self.clone(like, hparams, start="scratch", reason=reason)

    def drain(self, node: str, *, grace: float = A_DAY) -> None:
        """Ask a node to leave: it gets no more units, and then ends.

        Args:
            node: The node's name.
            grace: Seconds for the unit that it is in. A unit that would take longer is handed on at a batch
                boundary.

        Raises:
            RunError: The run is not live, or has no such node.
        """
        if grace < 0:
            raise RunError(f"grace is {grace:g}: give a number of seconds from 0 on")
        with live_run(*self.live_place()) as (record, _):
            if not NodeLedger(record).drain(node, grace):
                nodes = record.state().nodes
                raise RunError(
                    f"no node {node!r} is registered in run {self.id!r}; {did_you_mean(node, nodes)}"
                )

    def end(self, *, reason: str = "the run was ended by hand") -> int:
        """Stop all live configs, also those that the search proposes in their place, until the leader ends
        the run. What they have committed stays.

        Args:
            reason: Why, for the record of each config.

        Returns:
            The number of configs that were stopped.

        Raises:
            RunError: The run is not live, or has not ended after 30 seconds.
        """
        stopped: set[str] = set()
        until = time.monotonic() + _END_SECONDS
        with live_run(*self.live_place()) as (record, _):
            while not record.ended():
                state = record.state()
                live = [name for name, config in state.configs.items() if config.status is Status.LIVE]
                for name in live:
                    OperatorLedger(record).stop(name, reason)
                stopped.update(live)
                if state.leader is None and not live:
                    raise RunError(
                        f"all configs of run {self.id!r} are stopped, but no controller leads it: it ends "
                        "once one does"
                    )
                if time.monotonic() > until:
                    raise RunError(
                        f"run {self.id!r} has not ended after {_END_SECONDS:g} s, in which {len(stopped)} "
                        "configs were stopped: its search proposes new ones. Stop the command that runs it"
                    )
                time.sleep(_END_PAUSE)
        return len(stopped)

    def extend(
        self,
        *,
        epochs: int | None = None,
        num: int | None = None,
        budget: Mapping[str, float] | None = None,
        configs: Sequence[str] = (),
        top: int | None = None,
        by: str = "",
        changed_code: bool = False,
        grace: float = GRACE,
        callbacks: Sequence[RunCallback] = (),
        watcher: Watcher | None = None,
    ) -> RunResult:
        """Let a run that has ended go on, as if it had been that long from the start.

        A run with an etcd of its own goes on in this process, as by ``run``. One of a shared etcd goes on as
        soon as its hosts are started again, each with the same command as before.

        Args:
            epochs: The epochs of each config in all. Those that have used up theirs go on from their
                checkpoints.
            num: How many configs the search may propose in all.
            budget: Bounds of the recipe's ``search.budget`` by name, and their new values.
            configs: Only these configs get more epochs, also if the search or the task had stopped them.
            top: The number of best configs that get more epochs.
            by: The name of the person who requests it, for the record.
            changed_code: Go on though the code has changed since the configs were trained.
            grace: Seconds that the nodes have to leave when the run is stopped.
            callbacks: They are called when a unit, an epoch and the run have ended.
            watcher: It gets lines of text and the run's state, as the command line shows them.

        Returns:
            The run's result; of a shared etcd, the run as it is now.

        Raises:
            RunError: The run has not ended, its code has changed, or a training or the search depends on the
                number of epochs: the message names what, and what would have been different.

        Example:
            >>> short = run("sweep.yaml", run_id="short", epochs=1)
            >>> result = Run.open("short").extend(epochs=2)
            >>> [(len(row.curve), row.status.value) for row in result.leaderboard]
            [(2, 'finished'), (2, 'finished')]
        """
        from cerebro_elastic.runs.extension import Wish
        from cerebro_elastic.runs.start.extend import extend
        from cerebro_elastic.runs.start.prepare_run import agreement

        wish = Wish(epochs, num, budget or {}, tuple(configs), top, one_line(by))
        agrees = agreement(changed_code)
        return extend(self.result, wish, grace=grace, callbacks=callbacks, watcher=watcher, agrees=agrees)

    def retry(
        self,
        configs: Sequence[str] = (),
        *,
        by: str = "",
        changed_code: bool = False,
        grace: float = GRACE,
        callbacks: Sequence[RunCallback] = (),
        watcher: Watcher | None = None,
    ) -> RunResult:
        """Train failed configs again: from their last checkpoints, or from the start if they have none, with
        the code as it is now. The tries of their units count anew.

        A run with an etcd of its own goes on in this process, as by ``run``. One of a shared etcd goes on as
        soon as its hosts are started again. In a live run they go on at once, with the code that the run has
        imported; so it is refused if that has changed.

        Args:
            configs: The ids of failed configs; by default all that have failed.
            by: The name of the person who requests it, for the record.
            changed_code: In a run that was stopped, also go on with configs that have not failed though the
                code has changed since.
            grace: Seconds that the nodes have to leave when the run is stopped.
            callbacks: They are called when a unit, an epoch and the run have ended.
            watcher: It gets lines of text and the run's state, as the command line shows them.

        Returns:
            The run's result; of a live run or a shared etcd, the run as it is now.

        Raises:
            RunError: No config has failed, one that is named has not, its last checkpoint is gone, or the
                code has changed.

        Example:
            >>> Run.open("sweep").retry()
            Traceback (most recent call last):
            cerebro_elastic.errors.RunError: no config of run 'sweep' has failed: there is none to try again
        """
        from cerebro_elastic.runs.start.prepare_run import agreement
        from cerebro_elastic.runs.start.retry import retry

        agrees = agreement(changed_code)
        return retry(
            self, configs, by=one_line(by), grace=grace, callbacks=callbacks, watcher=watcher, agrees=agrees
        )

    def verify(
        self,
        *,
        head: str | None = None,
        export: str | Path | None = None,
        seconds: float = DECIDING_SECONDS,
        say: Callable[[str], None] = lambda _text: None,
    ) -> list[Violation]:
        """Check the run's record, and that all that was made of it agrees with it (imports torch).

        The history is checked against the invariants and its own chain of digests; spec, checkpoints, data,
        logged rows, ``metrics.csv`` and report are checked against the history. Decisions are made again.

        Args:
            head: A head of the record that you have noted, or its first characters: the record must have it.
            export: The folder of an exported model: the run must have led to it.
            seconds: For how long decisions are made again.
            say: It is called with each note: what is worth knowing, and no violation.

        Returns:
            The violations; none if the record is sound.

        Raises:
            RunError: The run's checkpoints are not in reach from this machine.

        Example:
            >>> Run.open("sweep").verify()
            []
        """
        from cerebro_elastic.runs.results.verify import verify

        return verify(self.result, head=head, export=export, seconds=seconds, say=say)

    def replay(self, config: str = "best") -> Iterator[ReplayedVisit]:
        """Train a config again on this machine, from its beginning, in the order of its visits (imports
        torch).

        No recorded state is used: each unit continues from the one replayed before, and is trained by the
        same strategy as in the run. A config that began with another one's checkpoint is replayed from that
        one's beginning; one that began with a checkpoint from outside the run, from there. A unit that was
        split is trained in its parts, and in one go as well.

        Args:
            config: The config's id; ``best`` for the best one.

        Yields:
            Each visit, when it has been trained again.

        Raises:
            RunError: No such config, or the run's modules or data are not on this machine.

        Example:
            >>> all(visit.same for visit in Run.open("sweep").replay("c0001"))
            True
        """
        from cerebro_elastic.runs.results.replay import replay

        return replay(self.result, config)

    def export(self, folder: str | Path, config: str = "best") -> ExportedConfig:
        """Write a config's model as it was at the end of its best epoch (imports torch).

        If the objective was never logged, the last epoch is taken. The folder gets the weights (safetensors),
        a checkpoint in the format of the task's framework if it has one, a record for machines, and a model
        card.

        Args:
            folder: A new or empty folder.
            config: The config's id; ``best`` for the best one.

        Returns:
            What was exported, and what of its state the files do not have.

        Raises:
            RunError: No such config, nothing to export yet, or the folder is not empty.
            TaskError: The task does not say how its models are exported.

        Example:
            >>> exported = Run.open("sweep").export("best-model")
            >>> exported.at.epoch
            2
            >>> sorted(path.name for path in Path("best-model").iterdir())
            ['README.md', 'model.safetensors', 'record.json']
        """
        from cerebro_elastic.runs.results.export import export

        return export(self.result, folder, config)

    @property
    def tags(self) -> tuple[str, ...]:
        """The run's tags, sorted."""
        return catalog.tags_of(self.folder)

    def tag(self, *add: str, remove: Sequence[str] = ()) -> tuple[str, ...]:
        """Give the run tags, and take others away. They are kept in its folder and are no part of its record.

        Args:
            add: The tags that it gets.
            remove: The tags that it loses.

        Returns:
            Its tags now.

        Raises:
            RunError: No tag, or none that it has.

        Example:
            >>> Run.open("sweep").tag("good", "paper")
            ('good', 'paper')
            >>> Run.open("sweep").tag(remove=["paper"])
            ('good',)
        """
        self._check_folder()
        return catalog.retag(self.folder, add, remove)

    def compare(self, *others: Run) -> Comparison:
        """Compare runs: in what their recipes, data, code and versions differ, and what came of them."""
        from cerebro_elastic.runs.comparison import compare

        return compare([run.result for run in (self, *others)])

    def prune(self, keep: Sequence[Kept] = ("best",), *, dry: bool = False) -> Pruning:
        """Remove checkpoints of a run that has ended. A note stays in the place of each.

        Args:
            keep: What stays: each config's ``best``, each config's ``last``, the ``winner``'s best.
            dry: Whether only to say what would be removed.

        Returns:
            What was removed, and what can still be done.

        Raises:
            RunError: The run has not ended, is live, or is another user's.
        """
        from cerebro_elastic.runs.removal import prune, pruning

        self._check_folder()
        planned = pruning(self.result, keep)
        assert planned is not None
        if not dry:
            prune(self.result, planned)
        return planned

    def remove(self) -> None:
        """Remove the run and all that is its: its folder, its checkpoints and logs wherever they are, and its
        keys in an etcd that it shares.

        Raises:
            RunError: The run is live, or another user's.
        """
        from cerebro_elastic.runs.removal import Removal

        self._check_folder()
        Removal.of(self.folder).perform()

    def _check_folder(self) -> None:
        if self.store is not None or not self.folder.spec.exists():
            raise RunError(
                f"run {self.id!r} has no folder on this machine: do this on a machine of the run, without "
                f"{option('etcd', 'store')}"
            )

    def report(self, output: str | Path | None = None) -> str:
        """Write the run's report, as far as it has come: one HTML page that needs no network.

        Args:
            output: A file or URL, by default ``report.html`` in the run's folder, or ``RUN.html`` here if
                this machine has no such folder.

        Returns:
            The file or URL.
        """
        from cerebro_elastic.runs.results.report import write_report

        return write_report(self.result, output)

    def to_pandas(self, per: Literal["config", "epoch"] = "config") -> pandas.DataFrame:
        """The results so far as a table, as ``RunResult.to_pandas``."""
        return self.result.to_pandas(per)

    def live_store(self) -> StoreSettings | None:
        """The settings of the store while the run may be live; ``None`` if it surely is not. Raises
        ``RunError`` if others can have made its folder."""
        if self.store is not None:
            return self.store
        return store_of(self.folder) if self.folder.endpoint.exists() else None

    def live_place(self) -> tuple[str, StoreSettings]:
        """The run's id and its store. Raises ``RunError`` if the run is not live."""
        settings = self.live_store()
        if settings is None:
            raise RunError(
                f"run {self.folder.run!r} is not live on this machine; if it is elsewhere, name its etcd "
                f"with {option('etcd', 'store')}"
            )
        return self.id, settings


def phase_of(state: State, *, live: bool) -> Phase:
    """The phase of a run in this ``state``."""
    if live:
        return "running" if state.nodes and state.configs else "starting"
    return "stopped" if state.outcome is None else "ended"


def _check_changes(name: str, parent: Config, changed: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Raise ``RunError`` unless the parent has these hyper-parameters, and the values are as in the space, or
    else like the parent's."""
    for key, value in changed.items():
        if key not in parent.hparams:
            near = did_you_mean(key, parent.hparams)
            raise RunError(f"config {name!r} has no hyper-parameter {key!r}; {near}")
        own = parent.hparams[key]
        other_type = own is not None and type(value) is not type(own)
        expected = misfit(Domain.model_validate(space.get(key, [own])), value)
        if expected is not None and (key in space or other_type):
            raise RunError(f"{key}={value}: {key} has to be {expected}; {name} has {own!r}")


def _at_best(record: Record, spec: Spec, parent: Config) -> Config:
    """The parent as it was at the end of its best epoch, whose checkpoint is kept."""
    objective = Objective.model_validate(spec.recipe.get("objective", {}))
    ends = epoch_ends(ConfigHistory.of(parent, record.visits_of(parent.id), spec.plan).curve)
    place = best_end(ends, objective.metric, objective.mode)
    if place is None:
        raise RunError(
            f"config {parent.id!r} has no best epoch yet: none has ended with a finite value of "
            f"{objective.metric!r}"
        )
    return at_end(parent, ends[place])


def _known(record: Record, name: str, config: Config | None) -> Config:
    if config is None:
        configs = record.state().configs
        raise RunError(f"run {record.keys.run!r} has no config {name!r}; {did_you_mean(name, configs)}")
    return config
