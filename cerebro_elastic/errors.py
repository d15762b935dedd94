"""The errors that a user may see, as one tree. Every message has the value, the rule, the choices and the
next step.

Errors are translated once, where a foreign library is called (``raise StoreUnavailable(...) from exc``). The
CLI prints ``str(error)`` and exits with ``error.exit_code``, never with a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any


class CerebroError(Exception):
    """Base of all errors that a user may see. ``exit_code`` is that of the command line.

    Example:
        >>> try:
        ...     Run.open("swep")
        ... except CerebroError as error:
        ...     print(str(error).partition(";")[0])
        there is no run 'swep' in ...
    """

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """A notebook's output: the message says what to do, and a traceback hides it."""
        return [f"{type(self).__name__}: {self}"]


class RecipeError(CerebroError):
    """The recipe is wrong: nothing was started.

    Example:
        >>> load_recipe("sweep.yaml", epochs=0)
        Traceback (most recent call last):
        cerebro_elastic.errors.RecipeError: override: epochs is 0: input should be greater than or equal to 1
    """

    exit_code = 2


class TaskError(CerebroError):
    """The user's module or functions cannot be used as they are.

    Example:
        >>> prepare("no_such_module:load", "data", partitions=2)
        Traceback (most recent call last):
        cerebro_elastic.errors.TaskError: ...
    """

    exit_code = 2


class DataError(CerebroError):
    """A dataset is malformed, missing or damaged.

    Example:
        >>> prepare("no-such.csv", "data", partitions=2)
        Traceback (most recent call last):
        cerebro_elastic.errors.DataError: ...
    """


class DamagedData(DataError):
    """Data changed on this machine after they were checked. Units trained on them do not count. Their source
    may be intact."""


class CheckpointError(CerebroError):
    """A checkpoint is missing or damaged, or has a value that cannot be stored.

    Example:
        >>> try:
        ...     state = Run.open("sweep").result.state("best")
        ... except CheckpointError as error:
        ...     print("the best state cannot be read:", error)
    """


class DamagedCheckpoint(CheckpointError):
    """A checkpoint was read, and its files are missing or differ from the saved ones."""


class PrunedCheckpoint(DamagedCheckpoint):
    """``cerebro rm --checkpoints`` has removed the checkpoint to save space."""


class StorageError(CerebroError):
    """The storage of files cannot be reached, is too slow or refuses access. The files may be whole.

    Example:
        >>> try:
        ...     state = Run.open("sweep").result.state("best")
        ... except StorageError as error:
        ...     print("try again later:", error)
    """


class MissingExtra(CerebroError):
    """An optional dependency is not installed; the message says what to install.

    Example:
        >>> try:
        ...     axes = Run.open("sweep").result.plot_curves()
        ... except MissingExtra as error:
        ...     print(error)
    """

    exit_code = 2


class TrackerAway(CerebroError):
    """A tracker, such as MLflow, cannot be reached or refuses what it gets. The run continues; the tracker
    gets the missed rows when it is back."""


class GroupBroken(CerebroError):
    """The ranks of a unit cannot work together: one did not come, died or failed. The config is not to blame,
    and the process can form its next group."""


class RankUnreachable(GroupBroken):
    """This rank cannot listen for the others, or cannot reach the one that listens. Only it has the
    reason."""


class RanksApart(GroupBroken):
    """The ranks of a unit have met, and cannot connect to each other."""


class SearchError(CerebroError):
    """The search cannot continue as the recipe has it. Committed visits are safe.

    Example:
        >>> try:
        ...     result = run("sweep.yaml", seed=1)
        ... except SearchError as error:
        ...     print("correct `search`:", error)
    """

    exit_code = 2


class RunError(CerebroError):
    """A run cannot be opened, started or resumed.

    Example:
        >>> Run.open("sweep").result.config("c0009")
        Traceback (most recent call last):
        cerebro_elastic.errors.RunError: run 'sweep' has no config 'c0009'; did you mean 'c0001'? ...
    """


class NoTestSet(RunError):
    """The run's data have no test set."""


class SameConfig(RunError):
    """A run has this config already. ``config`` is its id."""

    def __init__(self, text: str, config: str) -> None:
        super().__init__(text)
        self.config = config


class RunFailed(RunError):
    """A run has ended, and all its configs failed. The message begins with the user's line that raised.

    Example:
        >>> try:
        ...     result = run("sweep.yaml", seed=1)
        ... except RunFailed as error:
        ...     print(error.result.failures["c0000"])
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result
        """The ``RunResult``: its ``failures`` have the reason of each config."""


class FolderInUse(RunError):
    """Another process of this machine takes part in the run from this folder."""


class NameTaken(RunError):
    """Another node of the run is registered under this name."""


class DiskFull(CerebroError):
    """No space is left where the run writes. Committed visits are safe."""


class StoreError(CerebroError):
    """Base of the errors of the store.

    Example:
        >>> StoreSettings(endpoints=())
        Traceback (most recent call last):
        cerebro_elastic.errors.StoreError: no etcd endpoint is given: ...
    """


class StoreUnavailable(StoreError):
    """The store did not answer within the deadline."""


class StoreFull(StoreUnavailable):
    """The store's database is full: it refuses writes until an operator makes room. Reads, watches and leases
    continue."""


class StoreRefused(StoreError):
    """The store answered and refused: credentials, version or permission."""


class TxnUnknown(StoreError):
    """A transaction was sent and no answer came: it may or may not have happened.

    It is never retried blindly. The caller reads the keys and decides.
    """


class Compacted(StoreError):
    """A watch asked for a revision that the store has compacted. Read the state again and watch from
    there."""


class Rewound(Compacted):
    """The store was restored from a snapshot, so its history differs from the one that was read before. Read
    the state again and watch from there."""


class LeaseLost(StoreError):
    """The lease has ended, and the keys under it are gone."""


class ScheduleError(CerebroError):
    """A scheduling problem is malformed or impossible.

    Example:
        >>> simulate("sweep.yaml", seconds=-1)
        Traceback (most recent call last):
        cerebro_elastic.errors.ScheduleError: ...
    """

    exit_code = 2


class IllegalEvent(CerebroError):
    """An event is not possible in the machine's present state. Nothing was changed."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and those that led to it, the last first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def brief(text: str, most: int = 100) -> str:
    """Foreign text for a message: of a long one, the beginning and the end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text)} characters) ... {text[-half:]}"


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A sentence listing ``choices`` (sorted), led by the nearest to ``name`` if there is one."""
    name, known = brief(name), sorted(map(brief, choices))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}choices: {', '.join(known) if known else '(none)'}"
