"""The error tree. Every message tells the value, the rule, the choices and what to do next.

Errors are translated once, at the border where a foreign library is called
(``raise StoreUnavailable(...) from exc``); the CLI prints ``str(error)`` and exits
with ``error.exit_code``, never with a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CerebroError(Exception):
    """Base of all errors that a user may see."""

    exit_code = 1


class RecipeError(CerebroError):
    """The recipe is wrong: nothing was started."""

    exit_code = 2


class TaskError(CerebroError):
    """The user's module or functions cannot be used as they are."""

    exit_code = 2


class DataError(CerebroError):
    """A dataset is malformed, missing or damaged."""


class DamagedData(DataError):
    """Data changed on this machine after they had been checked: what was made of them does not count. It says
    nothing of their source."""


class CheckpointError(CerebroError):
    """A checkpoint is missing, damaged, or holds what cannot be stored."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint's files are surely missing or not what was saved: read, and found so."""


class StorageError(CerebroError):
    """The storage of files cannot be reached, is too slow or refuses access. It says nothing of the files:
    what is there may be whole."""


class MissingExtra(CerebroError):
    """An optional dependency is not installed; the message says what to install."""

    exit_code = 2


class GroupBroken(CerebroError):
    """The ranks of a unit cannot work together: one did not come, died or failed. It says nothing of the
    config, and the process can form its next group."""


class SearchError(CerebroError):
    """The search cannot go on as the recipe has it. What was committed is safe."""

    exit_code = 2


class RunError(CerebroError):
    """A run cannot be opened, started or resumed."""


class NameTaken(RunError):
    """Another node of the run is registered under the name."""


class DiskFull(CerebroError):
    """No space left where the run writes; what was committed is safe."""


class StoreError(CerebroError):
    """Base of the errors of the store."""


class StoreUnavailable(StoreError):
    """The store did not answer within the deadline."""


class StoreFull(StoreUnavailable):
    """The store's database is full: it takes no writes until somebody makes room. Reads, watches and
    leases go on."""


class StoreRefused(StoreError):
    """The store answered and refused: credentials, version or permission."""


class TxnUnknown(StoreError):
    """A transaction was sent and no answer came: it may or may not have happened.

    Never retried blindly: the caller reads the keys and decides.
    """


class Compacted(StoreError):
    """A watch asked for a revision that the store has compacted; read afresh and watch from there."""


class Rewound(Compacted):
    """The store's history is not the one that was read before: it was restored from a snapshot. As for what
    is compacted: read afresh and watch from there."""


class LeaseLost(StoreError):
    """The lease has ended: what was registered under it is gone."""


class ScheduleError(CerebroError):
    """What is to be scheduled is malformed, or cannot be done."""

    exit_code = 2


class IllegalEvent(CerebroError):
    """An event that the machine's table does not allow in its present state; nothing was changed."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A sentence listing ``choices`` (sorted), led by the nearest to ``name`` if there is one."""
    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}choices: {', '.join(known) if known else '(none)'}"
