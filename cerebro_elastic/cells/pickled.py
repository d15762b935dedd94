"""What a notebook has, and has no source: pickled, if the recipe allows it.

Only a module that was written from cells reads such a file; nothing of a checkpoint is unpickled.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

from cerebro_elastic.errors import MissingExtra, TaskError


def pickled(name: str, value: Any) -> bytes:
    """The value of a global of the cells, by cloudpickle.

    Raises:
        TaskError: It cannot be pickled.
        MissingExtra: cloudpickle is not installed.
    """
    try:
        import cloudpickle
    except ImportError as exc:
        raise MissingExtra(
            f"{name} has no source that can be written, and to pickle it needs cloudpickle: pip install "
            "'cerebro-elastic[cloudpickle]'"
        ) from exc
    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as exc:  # of a class of anybody's
        raise TaskError(
            f"{name}, a {type(value).__name__} of the notebook, cannot be pickled: {exc}; make it inside "
            "what uses it"
        ) from exc
    return content


def unpickled(module: str, digest: str) -> Any:
    """The value with this SHA-256, from the file beside the ``module`` that was written from cells.

    Raises:
        TaskError: The file is missing, or is another.
    """
    file = Path(module).with_name(f"{digest[:12]}.pickle")
    try:
        content = file.read_bytes()
    except OSError as exc:
        raise TaskError(f"{file}, which the notebook has written, cannot be read: {exc.strerror}") from exc
    if hashlib.sha256(content).hexdigest() != digest:
        raise TaskError(f"{file} is not as the notebook has written it: run the cell with `fit` again")
    return pickle.loads(content)
