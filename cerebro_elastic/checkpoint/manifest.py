"""A checkpoint's manifest: what its other files hold, and where its state comes from.

The digest of a checkpoint covers the files alone: a unit that is done again, elsewhere and later, has to end
with the same digest.
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

VERSION = 1
ADVICE = "restore it from a copy, or start another run"
_ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says of its checkpoint."""

    digest: str
    origin: Origin | None
    """Where the state comes from, if the manifest says so."""


def text(contents: Mapping[str, Content], origin: Origin | None) -> bytes:
    """The manifest of files with these ``contents``."""
    return compact(_of(contents) | ({} if origin is None else {_ORIGIN: json.loads(encode(origin))}))


def ref(url: str, contents: Mapping[str, Content]) -> CheckpointRef:
    """The reference to the checkpoint of these files."""
    digest = hashlib.sha256(compact(_of(contents))).hexdigest()
    return CheckpointRef(url, digest, sum(what.bytes for what in contents.values()))


def contents(written: bytes, place: Place, ref: CheckpointRef) -> dict[str, Content]:
    """What the manifest ``written`` at ``place`` says of the other files. Raises ``DamagedCheckpoint`` if it
    is not that of ``ref``."""
    manifest, _, actual = _opened(written)
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
    return {name: Content(**what) for name, what in manifest["files"].items()}


def read(written: bytes, place: Place) -> Manifest:
    """What the manifest ``written`` at ``place`` says. Raises ``DamagedCheckpoint`` if it is not as it was
    written, in its origin or elsewhere."""
    document, stated, digest = _opened(written)
    if not document:
        raise DamagedCheckpoint(f"{place} is no manifest as this program writes it; {ADVICE}")
    if stated is None:
        return Manifest(digest, None)
    try:
        origin = decode(json.dumps(stated), Origin)
    except UnreadableValue as exc:
        raise DamagedCheckpoint(f"{place} is damaged: {exc}; {ADVICE}") from exc
    if _canonical(encode(origin)) != _canonical(json.dumps(stated)):
        raise DamagedCheckpoint(f"{place} is damaged: its origin is not as it was written; {ADVICE}")
    return Manifest(digest, origin)


def compact(value: Any) -> bytes:
    """``value`` as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _of(contents: Mapping[str, Content]) -> dict[str, Any]:
    return {"version": VERSION, "files": {name: asdict(what) for name, what in contents.items()}}


def _canonical(text: str) -> str:
    """The same for equal JSON: a whole number may be written with a point or without."""
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)


def _opened(written: bytes) -> tuple[dict[str, Any], Any, str]:
    """A manifest without its origin, that, and the digest; empty, if it is no manifest as this program writes
    it."""
    try:
        manifest = json.loads(written)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or compact(manifest) != written:
        return {}, None, hashlib.sha256(written).hexdigest()
    origin = manifest.pop(_ORIGIN, None)
    return manifest, origin, hashlib.sha256(compact(manifest)).hexdigest()
