"""A run as one object: its results, its status, and the actions on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs import catalog
from cerebro_elastic.runs.catalog import RunSummary
from cerebro_elastic.runs.controlled import ControlledRun
from cerebro_elastic.runs.folder import find_run, home_of, run_folder
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.system.words import one_line, option

if TYPE_CHECKING:
    from cerebro_elastic.core.model.units import Measurement
    from cerebro_elastic.runs.callbacks import RunCallback
    from cerebro_elastic.runs.forecast.live import LiveForecast
    from cerebro_elastic.runs.removal import Kept, Pruning
    from cerebro_elastic.runs.results.export import ExportedConfig
    from cerebro_elastic.runs.terminal_view import Watcher


class Run(ControlledRun):
    """A run, live or ended, on this machine or on others.

    ``Run.open`` finds one, and ``run(..., wait=False)`` starts one in the background of this process. Such a
    run is led by a thread, so that a recipe may have Python objects and callbacks see yours; its nodes are
    separate processes, as always. As a context manager it is stopped at the end of its block if it has not
    ended, as by Ctrl-C; the exit of this process stops it, too. Committed units are safe, and the same call
    of ``run`` continues it.

    Stopping, resuming, cloning, draining and ending need a live run. Each is one transaction, is recorded in
    the history, and takes effect at once. The search leaves alone the configs on which a person has decided.

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
    """The present and former background runs of this process, by folder."""

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
        place = home_of(home)
        for path in (Path(run).expanduser(), place / run):
            if (background := cls.in_background.get(path.resolve())) is not None:
                return background
        return cls(find_run(run, place))

    @staticmethod
    def all(home: str | Path | None = None) -> Sequence[RunSummary]:
        """All runs of a home, the one whose record changed last first.

        Args:
            home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        """
        return catalog.summaries(home)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop a run in the background of this process, if it has not ended, and wait until all of its
        threads and processes here have ended. During the check of the recipe, that takes until the check's
        end. A run that is live elsewhere is not touched."""

    def plan(
        self,
        *,
        lose: Sequence[str] = (),
        add: int = 0,
        stop: Sequence[str] = (),
        deadline: str | None = None,
    ) -> LiveForecast:
        """Forecast when the live run ends, as it is and after a change. Nothing is changed.

        The rest of the run is simulated from its present state, with the measured seconds of its units.

        Args:
            lose: Nodes that are lost.
            add: The number of nodes that join, like the present ones.
            stop: Configs that are stopped.
            deadline: A duration such as ``2h30m``, or a date and time such as ``2026-12-01T08:00``. The
                answer says whether it holds, and otherwise names the changes with which it would.

        Raises:
            RunError: The run is not live, or has not trained a unit yet; no such node or config exists; or
                the deadline is past.

        Example:
            >>> Run.open("sweep").plan(add=1)
            Traceback (most recent call last):
            cerebro_elastic.errors.RunError: run 'sweep' is ended: only a live one can be forecast; ...
        """
        from cerebro_elastic.runs.forecast.live import forecast_live
        from cerebro_elastic.runs.forecast.rest import Change

        change = Change(tuple(dict.fromkeys(lose)), add, tuple(dict.fromkeys(stop)))
        return forecast_live(self, change, deadline)

    def extend(
        self,
        *,
        epochs: int | None = None,
        num: int | None = None,
        budget: Mapping[str, float | str] | None = None,
        configs: Sequence[str] = (),
        top: int | None = None,
        by: str = "",
        changed_code: bool = False,
        grace: float = GRACE,
        callbacks: Sequence[RunCallback] = (),
        watcher: Watcher | None = None,
    ) -> RunResult:
        """Continue an ended run, for more epochs, configs or budget.

        Each config continues from its last checkpoint, like a resumed fit: values that a training derived
        from the number of epochs, such as a schedule, stay as in its state.

        A run with its own etcd continues in this process, as by ``run``. One of a shared etcd continues as
        soon as its hosts are started again, each with the same command as before.

        Args:
            epochs: The epochs of each config in all. Those that have used up theirs continue from their
                checkpoints.
            num: How many configs the search may propose in all.
            budget: Bounds of the recipe's ``search.budget`` by name, and their new values.
            configs: Only these configs get more epochs, even if the search or the task had stopped them.
            top: The number of best configs that get more epochs.
            by: The name of the person who requests it, for the record.
            changed_code: Continue although the code has changed since the configs were trained.
            grace: Seconds that the nodes have to leave when the run is stopped.
            callbacks: They are called when a unit, an epoch and the run have ended.
            watcher: It gets lines of text and the run's state, as the command line shows them.

        Returns:
            The run's result; of a shared etcd, the run as it is now.

        Raises:
            RunError: The run has not ended, its code has changed, the search depends on the number of epochs,
                or a checkpoint is gone.

        Example:
            >>> short = run("sweep.yaml", run_id="short", epochs=1)
            >>> result = Run.open("short").extend(epochs=2)
            >>> [(len(row.curve), row.status.value) for row in result.leaderboard]
            [(2, 'finished'), (2, 'finished')]
        """
        from cerebro_elastic.runs.arguments import Extend, checked
        from cerebro_elastic.runs.start.extend_and_retry import Terms, extend
        from cerebro_elastic.runs.start.prepare_run import agreement
        from cerebro_elastic.runs.terminal_view import Watcher

        given = {
            "epochs": epochs,
            "num": num,
            "budget": budget or {},
            "configs": configs,
            "top": top,
            "by": by,
        }
        wish = checked(Extend, given)
        terms = Terms(grace, callbacks, watcher or Watcher(), agrees=agreement(changed_code))
        return extend(self.result, wish, terms)

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
        the present code. The tries of their units count from 0 again.

        A run with its own etcd continues in this process, as by ``run``. One of a shared etcd continues as
        soon as its hosts are started again. In a live run the configs continue at once, with the code that
        the run has imported; so it is refused if that has changed.

        Args:
            configs: The ids of failed configs; by default all that have failed.
            by: The name of the person who requests it, for the record.
            changed_code: In a run that was stopped, also continue configs that have not failed, although the
                code has changed since.
            grace: Seconds that the nodes have to leave when the run is stopped.
            callbacks: They are called when a unit, an epoch and the run have ended.
            watcher: It gets lines of text and the run's state, as the command line shows them.

        Returns:
            The run's result; of a live run or a shared etcd, the run as it is now.

        Raises:
            RunError: No config has failed, a named one has not, its last checkpoint is gone, or the code has
                changed.

        Example:
            >>> Run.open("sweep").retry()
            Traceback (most recent call last):
            cerebro_elastic.errors.RunError: no config of run 'sweep' has failed: there is none to try again
        """
        from cerebro_elastic.runs.start.extend_and_retry import Terms, retry
        from cerebro_elastic.runs.start.prepare_run import agreement
        from cerebro_elastic.runs.terminal_view import Watcher

        terms = Terms(grace, callbacks, watcher or Watcher(), agrees=agreement(changed_code))
        return retry(self, configs, one_line(by), terms)

    def export(self, folder: str | Path, config: str = "best", *, merged: bool = False) -> ExportedConfig:
        """Write a config's model as it was at the end of its best epoch (imports torch).

        If the objective was never logged, the last epoch is taken. The folder gets the weights (safetensors),
        a checkpoint in the format of the task's framework if it has one, a record for machines, and a model
        card.

        Args:
            folder: A new or empty folder, or its URL.
            config: The config's id; ``best`` for the best one.
            merged: For an adapter of PEFT: write the base with the adapter merged into it.

        Returns:
            The exported config, with the parts of its state that the files do not have.

        Raises:
            RunError: No such config, nothing to export yet, or the folder is not empty.
            StorageError: The storage cannot be reached, or ``folder`` is no path or URL.
            TaskError: The task does not define the export of its models, or has no adapters to merge.

        Example:
            >>> exported = Run.open("sweep").export("best-model")
            >>> exported.at.epoch
            2
            >>> sorted(path.name for path in Path("best-model").iterdir())
            ['README.md', 'model.safetensors', 'record.json']
        """
        from cerebro_elastic.runs.results.export import export

        return export(self.result, folder, config, merged=merged)

    def test(self, top: int = 1, *, by: str = "") -> list[Measurement]:
        """Measure the best configs of an ended run on its test set (imports torch).

        The recipe's ``data.test`` keeps its rows from all units. A run measures its best config by itself,
        when it ends. A model measured before is not measured again.

        Args:
            top: The number of best configs. They stay ranked by validation: a choice among them by the test
                set would use it up.
            by: The name of the person who requests it, for the record.

        Returns:
            The measurement of each of them, the best by validation first.

        Raises:
            NoTestSet: The run has no test set: the message says what to add.
            RunError: The run has not ended, or has fewer configs with a best epoch.
            CheckpointError: A model is gone, as after ``prune``.

        Example:
            >>> Run.open("sweep").test()
            Traceback (most recent call last):
            cerebro_elastic.errors.NoTestSet: run 'sweep' has no test set: its rows were all used for ...
        """
        from cerebro_elastic.runs.results.test_set import measure_best

        return measure_best(self.result, top, one_line(by))

    def prune(self, keep: Sequence[Kept] = ("best",), *, dry: bool = False) -> Pruning:
        """Remove checkpoints of an ended run. A note stays in the place of each.

        Args:
            keep: The checkpoints that stay: each config's ``best``, each config's ``last``, the ``winner``'s
                best.
            dry: Whether only to return what would be removed.

        Returns:
            The removed checkpoints, and the remaining uses of the run.

        Raises:
            RunError: The run has not ended, is live, or is another user's.
        """
        from cerebro_elastic.runs.removal import prune, pruning

        self._check_folder()
        planned = pruning(self.result, keep)
        if not dry:
            prune(self.result, planned)
        return planned

    def remove(self) -> None:
        """Remove the run and everything that belongs to it: its folder, its checkpoints and logs wherever
        they are, and its keys in a shared etcd.

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
        """Write the run's report up to now: one HTML page that needs no network.

        Args:
            output: A file or URL, by default ``report.html`` in the run's folder, or ``RUN.html`` here if
                this machine has no such folder.

        Returns:
            The file or URL.
        """
        from cerebro_elastic.runs.results.report import write_report

        return write_report(self.result, output)
