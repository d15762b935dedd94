"""Checkpoints on any fsspec URL: immutable, verified by digest, loaded without unpickling.

A checkpoint is a folder of three files. ``manifest.json`` is written last and gives the size and
sha256 of the other two: a folder without it is no checkpoint. A ``CheckpointRef``'s digest is the
sha256 of ``manifest.json``, which is a function of the state alone: equal states, equal digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from cerebro_elastic.checkpoint import tensors, tree
from cerebro_elastic.core.values import CheckpointRef
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.files import (
    Content,
    Place,
    Sha256,
    content,
    locate,
    open_read,
    pieces,
    settle,
    translated,
    write,
)

VERSION = 1
MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"
TREE = "tree.json"


def save(state: Mapping[str, Any], url: str) -> CheckpointRef:
    """Write ``state`` under ``url``, a fresh name. It is readable by others when this returns.

    ``state`` must not change meanwhile. Raises ``CheckpointError`` if it holds what cannot be
    stored (see ``tree``), if ``url`` is taken, or if writing fails; ``DiskFull`` if there is no space.
    """
    values, flat = tree.flatten(state)
    layout = tensors.specs(flat)
    listed = [(spec.name, str(spec.dtype).removeprefix("torch."), spec.shape) for spec in layout]
    with translated(CheckpointError, f"cannot write the checkpoint {url}"):
        folder = locate(url)
        if folder.fs.exists((folder / MANIFEST).path):
            raise CheckpointError(
                f"{url} already holds a checkpoint, and checkpoints never change: save elsewhere"
            )
        contents = {
            TENSORS: write(folder / TENSORS, [tensors.header(layout), *tensors.memory(layout, flat)]),
            TREE: write(folder / TREE, [_json({"tensors": listed, "state": values})]),
        }
        manifest = _json(
            {"version": VERSION, "files": {name: asdict(what) for name, what in contents.items()}}
        )
        write(folder / MANIFEST, [manifest])
        settle(folder)
    size = sum(what.bytes for what in contents.values())
    return CheckpointRef(url, hashlib.sha256(manifest).hexdigest(), size)


def load(ref: CheckpointRef) -> Any:
    """The saved state, each file read once and checked on the way; tensors are fresh, on the CPU.

    Raises ``CheckpointError`` if a file is missing, cut short or damaged.
    """
    with _reading(ref) as folder:
        contents = _contents(folder, ref)
        text: bytes = folder.fs.cat_file((folder / TREE).path)
        _check(folder / TREE, contents[TREE], Content(len(text), hashlib.sha256(text).hexdigest()))
        saved = json.loads(text)
        layout = [
            tensors.Spec(name, getattr(torch, dtype), tuple(shape)) for name, dtype, shape in saved["tensors"]
        ]
        flat = tensors.empty(layout)
        targets = [memoryview(bytearray(len(tensors.header(layout)))), *tensors.memory(layout, flat)]
        _check(folder / TENSORS, contents[TENSORS], _read_into(folder / TENSORS, targets))
    return tree.unflatten(saved["state"], flat)


def verify(ref: CheckpointRef) -> None:
    """Raise ``CheckpointError`` unless every file is there with the size and digest it was saved with."""
    with _reading(ref) as folder:
        for name, expected in _contents(folder, ref).items():
            _check(folder / name, expected, content(folder / name))


def verify_sizes(ref: CheckpointRef) -> None:
    """``verify`` at a glance: the manifest, and the sizes of the other files, which are not read."""
    with _reading(ref) as folder:
        for name, expected in _contents(folder, ref).items():
            size = folder.fs.size((folder / name).path)
            if size != expected.bytes:
                what = "cut short" if size < expected.bytes else "damaged"
                raise CheckpointError(
                    f"{folder / name} is {what}: it has {size} bytes instead of {expected.bytes}; {_ADVICE}"
                )


def remove(ref: CheckpointRef) -> None:
    """Delete the checkpoint, its manifest first; nothing happens if it is gone already."""
    with translated(CheckpointError, f"cannot delete the checkpoint {ref.url}"):
        folder = locate(ref.url)
        if folder.fs.exists((folder / MANIFEST).path):
            folder.fs.rm_file((folder / MANIFEST).path)
        if folder.fs.exists(folder.path):
            folder.fs.rm(folder.path, recursive=True)


@contextmanager
def _reading(ref: CheckpointRef) -> Iterator[Place]:
    with translated(CheckpointError, f"cannot read the checkpoint {ref.url}"):
        try:
            yield locate(ref.url)
        except FileNotFoundError as exc:
            raise CheckpointError(
                f"a file of the checkpoint {ref.url} is missing ({exc}): {_ADVICE}"
            ) from exc


def _read_into(place: Place, targets: Iterable[memoryview]) -> Content:
    """Fill ``targets`` from the file front to back; what the whole file holds."""
    with open_read(place) as file, Sha256() as digest:
        for target in targets:
            for piece in pieces(target):
                if not _fill(piece, file):
                    return content(place)  # cut short: what was read already is of no use
                digest.update(piece)
        digest.update(file.read())
        return digest.content()


def _fill(target: memoryview, file: Any) -> bool:
    """Read exactly ``target`` from ``file``; whether there was enough."""
    filled = 0
    while filled < len(target) and (got := file.readinto(target[filled:])):
        filled += got
    return filled == len(target)


def _contents(folder: Place, ref: CheckpointRef) -> dict[str, Content]:
    """What the manifest says of the other files."""
    text = folder.fs.cat_file((folder / MANIFEST).path)
    found = hashlib.sha256(text).hexdigest()
    if found != ref.digest:
        raise CheckpointError(
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
        raise CheckpointError(f"{place} is {what}: expected {expected}, found {found}; {_ADVICE}")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_ADVICE = "restore it from a copy, or start another run"
