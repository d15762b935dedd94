"""A checkpoint's manifest: the content of its other files, and the origin of its state.

The digest of a checkpoint covers the content of the files, not their place: a unit that is trained again,
elsewhere and later, must end with the same digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint
from cerebro_elastic.system.files import Content, Place

VERSION = 2
ADVICE = "restore it from a copy, or start another run"
_ORIGIN, _BASES, _STAYS = "origin", "bases", "stays"


@dataclass(frozen=True, slots=True)
class Still:
    """A tensor as it was when a unit began: it stays if it still is so at the unit's end."""

    content: Content
    """Its bytes."""
    base: Content | None = None
    """The base that has it, if one has."""
    offset: int = 0
    """Where it lies there."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest's entries on its checkpoint."""

    digest: str
    origin: Origin | None
    """Where the state comes from, if the manifest says so."""
    bases: frozenset[str] = frozenset()
    """The names of the bases in which tensors of the state lie."""


def text(contents: Mapping[str, Content], origin: Origin | None, stays: Mapping[str, Still]) -> bytes:
    """The manifest of files with these ``contents``; the tensors of ``stays`` lie in bases."""
    bases = list(dict.fromkeys(still.base for still in stays.values() if still.base is not None))
    places = {
        name: [still.content.bytes, still.content.sha256, bases.index(still.base), still.offset]
        for name, still in stays.items()
        if still.base is not None
    }
    listed = {_BASES: [asdict(base) for base in bases], _STAYS: places} if places else {}
    stated = {} if origin is None else {_ORIGIN: json.loads(encode(origin))}
    return compact(_of(contents) | listed | stated)


def ref(url: str, contents: Mapping[str, Content], stays: Mapping[str, Still]) -> CheckpointRef:
    """The reference to the checkpoint of these files; the tensors of ``stays`` lie in bases."""
    digest = hashlib.sha256(compact(_of(contents))).hexdigest()
    size = sum(what.bytes for what in contents.values())
    return CheckpointRef(url, digest, size, sum(still.content.bytes for still in stays.values()))


def contents(written: bytes, place: Place, ref: CheckpointRef) -> tuple[dict[str, Content], dict[str, Still]]:
    """The entries of the manifest ``written`` at ``place`` on the other files, and on tensors in bases.
    Raises ``DamagedCheckpoint`` if it is not that of ``ref``."""
    manifest, beside, actual = _opened(written)
    if actual != ref.digest:
        raise DamagedCheckpoint(
            f"{place} is damaged or of another checkpoint: expected sha256 {ref.digest}, found {actual}; "
            f"{ADVICE}"
        )
    if manifest["version"] != VERSION:
        raise CheckpointError(
            f"{place} has version {manifest['version']}, this program reads version {VERSION}: "
            "use the cerebro-elastic that wrote it"
        )
    return {name: Content(**what) for name, what in manifest["files"].items()}, _stays(beside, place)


def read(written: bytes, place: Place) -> Manifest:
    """The manifest ``written`` at ``place``. Raises ``DamagedCheckpoint`` if it has changed since it was
    written, in its origin or elsewhere."""
    document, beside, digest = _opened(written)
    if not document:
        raise DamagedCheckpoint(f"{place} is no manifest as this program writes it; {ADVICE}")
    stated = beside.get(_ORIGIN)
    bases = frozenset(still.base.sha256 for still in _stays(beside, place).values() if still.base is not None)
    if stated is None:
        return Manifest(digest, None, bases)
    try:
        origin = decode(json.dumps(stated), Origin)
    except UnreadableValue as exc:
        raise DamagedCheckpoint(f"{place} is damaged: {exc}; {ADVICE}") from exc
    if _canonical(encode(origin)) != _canonical(json.dumps(stated)):
        raise DamagedCheckpoint(f"{place} is damaged: its origin is not as it was written; {ADVICE}")
    return Manifest(digest, origin, bases)


def compact(value: Any) -> bytes:
    """``value`` as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _stays(beside: Mapping[str, Any], place: Place) -> dict[str, Still]:
    """The tensors in bases by name, from the part that the digest does not cover."""
    try:
        bases = [Content(**base) for base in beside.get(_BASES, ())]
        return {
            name: Still(Content(size, sha256), bases[number], offset)
            for name, (size, sha256, number, offset) in beside.get(_STAYS, {}).items()
        }
    except (TypeError, ValueError, AttributeError, LookupError) as exc:
        raise DamagedCheckpoint(f"{place} is damaged: its bases are not as written; {ADVICE}") from exc


def _of(contents: Mapping[str, Content]) -> dict[str, Any]:
    return {"version": VERSION, "files": {name: asdict(what) for name, what in contents.items()}}


def _canonical(text: str) -> str:
    """The same for equal JSON: a whole number may be written with a point or without."""
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)


def _opened(written: bytes) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The part of a manifest that its digest covers, the rest, and the digest; empty if it does not have the
    form of a manifest."""
    try:
        manifest = json.loads(written)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or compact(manifest) != written:
        return {}, {}, hashlib.sha256(written).hexdigest()
    beside = {key: manifest.pop(key) for key in (_BASES, _STAYS, _ORIGIN) if key in manifest}
    return manifest, beside, hashlib.sha256(compact(manifest)).hexdigest()
