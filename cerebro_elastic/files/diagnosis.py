"""Which trouble an exception of a file system tells of, if any."""

from __future__ import annotations

import errno

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.files.trouble import Trouble

_FACTS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_MISTAKES = (ImportError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, MemoryError)


def trouble_of(error: Exception, protocols: tuple[str, ...]) -> Trouble | None:
    """The trouble that ``error`` tells of a file system with these names; ``None`` if it tells a fact, or a
    mistake of the caller's."""
    if isinstance(error, (CerebroError, *_FACTS)):
        return None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Trouble.FULL
    if "s3" in protocols:
        from cerebro_elastic.files import s3

        if (told := s3.trouble_of(error)) is not None:
            return told
    if isinstance(error, PermissionError):
        return Trouble.REFUSED
    # Every backend has exceptions of its own for a network that fails.
    return None if isinstance(error, _MISTAKES) else Trouble.PASSING
