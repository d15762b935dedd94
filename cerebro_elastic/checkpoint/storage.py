"""Checkpoints on any fsspec URL: immutable, verified by digest, loaded without unpickling.

A checkpoint is a folder of three files. ``manifest.json`` is written last and gives the size and
sha256 of the other two: a folder without it is no checkpoint. A ``CheckpointRef``'s digest is the
sha256 of ``manifest.json``, which is a function of the state alone: equal states, equal digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from cerebro_elastic import files
from cerebro_elastic.checkpoint import tensors, tree
from cerebro_elastic.core.values import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint
from cerebro_elastic.files import (
    Chunk,
    Content,
    Place,
    content,
    digest,
    exists,
    locate,
    read,
    read_into,
    settle,
    translated,
    write,
)

VERSION = 1
MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"
TREE = "tree.json"


def save(state: Mapping[str, Any], url: str) -> CheckpointRef:
    """Write ``state`` under ``url``, a fresh name. It is readable by others when this returns; a power cut
    in the middle leaves no checkpoint, or the whole one.

    ``state`` must not change meanwhile. Raises ``CheckpointError`` if it holds what cannot be
    stored (see ``tree``) or if ``url`` is taken; ``StorageError`` or ``DiskFull`` if writing fails.
    """
    data = _data(state)
    with translated(CheckpointError, f"cannot write the checkpoint {url}"):
        folder = locate(url)
        if exists(folder / MANIFEST):
            raise CheckpointError(
                f"{folder} already holds a checkpoint, and checkpoints never change: save elsewhere"
            )
        return _write(folder, url, data)


def restore(state: Mapping[str, Any], ref: CheckpointRef) -> None:
    """Put the damaged checkpoint ``ref`` back in its place, ``state`` being what it held.

    Raises ``CheckpointError`` and writes nothing if it held another; else as ``save``.
    """
    data = _data(state)
    found = _ref(ref.url, {name: digest(file) for name, file in data.items()})
    if found != ref:
        raise CheckpointError(
            f"{ref.url} cannot be put back: it held a state of digest {ref.digest} ({ref.bytes} bytes), this "
            f"one has {found.digest} ({found.bytes} bytes)"
        )
    with translated(CheckpointError, f"cannot write the checkpoint {ref.url}"):
        _write(locate(ref.url), ref.url, data)


def load(ref: CheckpointRef) -> Any:
    """The saved state, each file read once and checked on the way; tensors are fresh, on the CPU.

    Raises ``DamagedCheckpoint`` if a file is missing, cut short or damaged, ``StorageError`` if that
    cannot be known.
    """
    with _reading(ref) as folder:
        contents = _contents(folder, ref)
        text = read(folder / TREE)
        _check(folder / TREE, contents[TREE], digest([text]))
        saved = json.loads(text)
        layout = [
            tensors.Spec(name, getattr(torch, dtype), tuple(shape)) for name, dtype, shape in saved["tensors"]
        ]
        flat = tensors.empty(layout)
        targets = [memoryview(bytearray(len(tensors.header(layout)))), *tensors.memory(layout, flat)]
        _check(folder / TENSORS, contents[TENSORS], read_into(folder / TENSORS, targets))
    return tree.unflatten(saved["state"], flat)


def verify(ref: CheckpointRef) -> None:
    """Raise ``DamagedCheckpoint`` unless every file is there with the size and digest it was saved with."""
    with _reading(ref) as folder:
        for name, expected in _contents(folder, ref).items():
            _check(folder / name, expected, content(folder / name))


def remove(ref: CheckpointRef) -> None:
    """Delete the checkpoint, its manifest first; nothing happens if it is gone already."""
    with translated(CheckpointError, f"cannot delete the checkpoint {ref.url}"):
        folder = locate(ref.url)
        files.remove(folder / MANIFEST)
        files.remove(folder)


def _data(state: Mapping[str, Any]) -> dict[str, Sequence[Chunk]]:
    """The files of ``state`` but for the manifest, by name."""
    values, flat = tree.flatten(state)
    layout = tensors.specs(flat)
    listed = [(spec.name, str(spec.dtype).removeprefix("torch."), spec.shape) for spec in layout]
    return {
        TENSORS: [tensors.header(layout), *tensors.memory(layout, flat)],
        TREE: [_json({"tensors": listed, "state": values})],
    }


def _write(folder: Place, url: str, data: Mapping[str, Sequence[Chunk]]) -> CheckpointRef:
    """The manifest last, and not before the names of the others are durable."""
    contents = {name: write(folder / name, file) for name, file in data.items()}
    settle(folder)
    write(folder / MANIFEST, [_manifest(contents)])
    settle(folder)
    return _ref(url, contents)


def _manifest(contents: Mapping[str, Content]) -> bytes:
    return _json({"version": VERSION, "files": {name: asdict(what) for name, what in contents.items()}})


def _ref(url: str, contents: Mapping[str, Content]) -> CheckpointRef:
    sha256 = hashlib.sha256(_manifest(contents)).hexdigest()
    return CheckpointRef(url, sha256, sum(what.bytes for what in contents.values()))


@contextmanager
def _reading(ref: CheckpointRef) -> Iterator[Place]:
    with translated(CheckpointError, f"cannot read the checkpoint {ref.url}"):
        try:
            yield locate(ref.url)
        except FileNotFoundError as exc:
            raise DamagedCheckpoint(
                f"a file of the checkpoint {ref.url} is missing ({exc}): {_ADVICE}"
            ) from exc


def _contents(folder: Place, ref: CheckpointRef) -> dict[str, Content]:
    """What the manifest says of the other files."""
    text = read(folder / MANIFEST)
    found = hashlib.sha256(text).hexdigest()
    if found != ref.digest:
        raise DamagedCheckpoint(
            f"{folder / MANIFEST} is damaged or of another checkpoint: expected sha256 {ref.digest}, "
            f"found {found}; {_ADVICE}"
        )
    manifest = json.loads(text)
    if manifest["version"] != VERSION:
        raise CheckpointError(
            f"{folder / MANIFEST} has version {manifest['version']}, this program reads version {VERSION}: "
            "use the cerebro-elastic that wrote it"
        )
    return {name: Content(**what) for name, what in manifest["files"].items()}


def _check(place: Place, expected: Content, found: Content) -> None:
    if found != expected:
        what = "cut short" if found.bytes < expected.bytes else "damaged"
        raise DamagedCheckpoint(f"{place} is {what}: expected {expected}, found {found}; {_ADVICE}")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_ADVICE = "restore it from a copy, or start another run"
