"""What goes wrong with files, in our words: missing files are facts, storage out of reach is trouble.

A *fact* about a file (it is missing, it is there already, its name cannot be) leaves this package as the
Python exception that it is, and the caller says what it means. *Trouble* is the storage's own and says
nothing of the files: it becomes ``StorageError`` or ``DiskFull`` here, once for all callers.

No message tells a secret: what is in a URL before ``@`` and behind ``?`` (presigned URLs) is left out, and
a foreign exception that tells one is not shown as the cause.
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from cerebro_elastic.errors import CerebroError, DiskFull, MissingExtra, StorageError


class Trouble(Enum):
    """What the storage did, and thereby whether another try makes sense."""

    PASSING = "cannot be reached"
    REFUSED = "refuses access"
    FULL = "has no space left"
    LASTING = "cannot do it"


_ADVICE = {
    Trouble.PASSING: "look whether the storage is up and this machine's network reaches it",
    Trouble.REFUSED: "renew the credentials of this machine, or give them the right",
    Trouble.FULL: "free some and run the same command again",
    Trouble.LASTING: "look whether the URL and the settings of its storage are right",
}


def storage_error(error: Exception, trouble: Trouble, where: object) -> CerebroError:
    """``trouble`` at the place ``where``, as ours."""
    kind = DiskFull if trouble is Trouble.FULL else StorageError
    why = "" if trouble is Trouble.FULL else f": {type(error).__name__}: {error}"
    return kind(redacted(f"{where}: the storage {trouble.value}{why}; {_ADVICE[trouble]}"))


@contextmanager
def translated(kind: type[CerebroError], doing: str) -> Iterator[None]:
    """Raise what is none of ours as ``kind``, a full disk as ``DiskFull``.

    Every format has exceptions of its own, hence ``Exception``: keep the block small.
    """
    try:
        yield
    except CerebroError:
        raise
    except ImportError as exc:
        raise MissingExtra(f"{doing}: {exc}; for s3:// URLs: pip install 'cerebro-elastic[s3]'") from exc
    except Exception as exc:
        full = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
        told = f"no space left; {_ADVICE[Trouble.FULL]}" if full else f"{type(exc).__name__}: {exc}"
        raise (DiskFull if full else kind)(redacted(f"{doing}: {told}")) from presentable(exc)


_USER = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY = re.compile(r"(\w+://[^\s'\"<>?]*)\?[^\s'\"<>]*")
_KEY = re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b")


def redacted(text: str) -> str:
    """``text`` without what may be secret: passwords and queries of URLs, ids of AWS keys."""
    return _KEY.sub("***", _QUERY.sub(r"\1", _USER.sub("", text)))


def presentable(error: Exception) -> Exception | None:
    """``error``, if all that its traceback shows may be shown."""
    shown: Any = "".join(traceback.format_exception(error))
    return error if redacted(shown) == shown else None
