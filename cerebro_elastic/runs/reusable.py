"""What a run could take over from earlier ones, as it was found when the run was opened: a file beside its
checkpoints, which every machine that leads the run reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.reuse import NOTHING, Reusable
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.system.files import Place, locate, read, translated, write

_FILE = "reuse.json"


def write_reusable(storage: str, reusable: Reusable) -> str:
    """Write the file. Returns its digest, for the spec."""
    text = encode(reusable).encode()
    with translated(CheckpointError, f"cannot write {_FILE}"):
        write(_place(storage), [text])
    return hashlib.sha256(text).hexdigest()


def read_reusable(spec: Spec, say: Callable[[str], None] = lambda _text: None) -> Reusable:
    """What the run of ``spec`` may take over. Without its file, or with another, that is nothing: the run
    trains all, and ``say`` gets the reason."""
    if not spec.reuse:
        return NOTHING
    place = _place(spec.storage)
    try:
        with translated(CheckpointError, f"cannot read {place}"):
            text = read(place)
        if hashlib.sha256(text).hexdigest() == spec.reuse:
            return decode(text, Reusable)
        why = f"{place} is not as it was written"
    except (CheckpointError, FileNotFoundError, UnreadableValue) as error:
        why = str(error)
    say(f"nothing is taken over from earlier runs, and all is trained: {why}")
    return NOTHING


def _place(storage: str) -> Place:
    return locate(storage) / _FILE
