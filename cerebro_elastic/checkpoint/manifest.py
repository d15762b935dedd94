"""A checkpoint's manifest: what its other files hold, and where its state comes from.

The digest of a checkpoint covers the first alone: who does a unit again, elsewhere and later, has to get the
same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint
from cerebro_elastic.files import Content, Place

VERSION = 1
ADVICE = "restore it from a copy, or start another run"
_ORIGIN = "origin"


def text(contents: Mapping[str, Content], origin: Origin | None) -> bytes:
    """The manifest of files with these ``contents``."""
    return compact(_of(contents) | ({} if origin is None else {_ORIGIN: json.loads(encode(origin))}))


def ref(url: str, contents: Mapping[str, Content]) -> CheckpointRef:
    """What names the checkpoint of these files."""
    digest = hashlib.sha256(compact(_of(contents))).hexdigest()
    return CheckpointRef(url, digest, sum(what.bytes for what in contents.values()))


def contents(written: bytes, place: Place, ref: CheckpointRef) -> dict[str, Content]:
    """What the manifest ``written`` at ``place`` says of the other files. Raises ``DamagedCheckpoint`` if it
    is not that of ``ref``."""
    manifest = _parsed(written)
    if compact(manifest) == written:
        manifest.pop(_ORIGIN, None)
        found = hashlib.sha256(compact(manifest)).hexdigest()
    else:
        found = hashlib.sha256(written).hexdigest()
    if found != ref.digest:
        raise DamagedCheckpoint(
            f"{place} is damaged or of another checkpoint: expected sha256 {ref.digest}, found {found}; "
            f"{ADVICE}"
        )
    if manifest["version"] != VERSION:
        raise CheckpointError(
            f"{place} has version {manifest['version']}, this program reads version {VERSION}: "
            "use the cerebro-elastic that wrote it"
        )
    return {name: Content(**what) for name, what in manifest["files"].items()}


def origin(written: bytes, place: Place) -> Origin | None:
    """Where the manifest ``written`` at ``place`` says that the state comes from, if it says it."""
    told = _parsed(written).get(_ORIGIN)
    try:
        return None if told is None else decode(json.dumps(told), Origin)
    except UnreadableValue as exc:
        raise DamagedCheckpoint(f"{place} is damaged: {exc}; {ADVICE}") from exc


def compact(value: Any) -> bytes:
    """As JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _of(contents: Mapping[str, Content]) -> dict[str, Any]:
    return {"version": VERSION, "files": {name: asdict(what) for name, what in contents.items()}}


def _parsed(written: bytes) -> dict[str, Any]:
    """Empty, if it is no manifest."""
    try:
        manifest = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
