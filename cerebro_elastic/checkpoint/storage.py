"""Checkpoints on any fsspec URL: immutable, verified by digest, loaded without unpickling.

A checkpoint is a folder. ``tree.json`` has the state but for its tensors, which ``tensors.safetensors`` has.
``manifest.json`` is written last and gives the size and sha256 of the others: a folder without it is no
checkpoint. A ``CheckpointRef``'s digest is the sha256 of that, which is a function of the state alone: equal
states, equal digests. Beside it the manifest may say where the state comes from (``core/model/origin.py``).

If ranks held parts of the state's tensors, each has written its own: ``part-<k>.safetensors`` has the rows of
rank k, and ``tree.json`` tells which tensors they make up and of how many parts. It is the same state all
the same: read by whoever wants all of it, and by a rank of as many that wants its own part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cerebro_elastic import files
from cerebro_elastic.checkpoint import manifest, tensors, tree
from cerebro_elastic.checkpoint.tensors import Part, Spec
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint
from cerebro_elastic.files import (
    Chunk,
    Content,
    Place,
    chunks,
    content,
    digest,
    exists,
    locate,
    read,
    read_into,
    settle,
    sizes,
    translated,
    write,
)

MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"
TREE = "tree.json"


def save(state: Mapping[str, Any], url: str, origin: Origin | None = None) -> CheckpointRef:
    """Write ``state`` under ``url``, a fresh name. It is readable by others when this returns; a power cut
    in the middle leaves no checkpoint, or the whole one. The manifest names its ``origin``.

    ``state`` must not change meanwhile. Raises ``CheckpointError`` if it holds what cannot be
    stored (see ``tree``) or if ``url`` is taken; ``StorageError`` or ``DiskFull`` if writing fails.
    """
    return stage(state).save(url, origin)


def stage(state: Mapping[str, Any]) -> Staged:
    """All of ``state`` that a save needs, on the host, so that it can be saved behind what is done next: what
    is no tensor is taken as it is now, and so is what lies on another device. Tensors on the host are not
    copied, but watched. Raises as ``save``."""
    values, flat = _flat(state)
    return Staged(_files(values, flat), flat, {name: _version(tensor) for name, tensor in flat.items()})


@dataclass(frozen=True)
class Staged:
    """A state that is ready to be saved, once: its files, and its tensors with the number of times that each
    had been written to."""

    data: Mapping[str, Sequence[Chunk]]
    tensors: Mapping[str, Tensor]
    versions: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def save(self, url: str, origin: Origin | None = None) -> CheckpointRef:
        """As ``save``. Raises ``CheckpointError`` if somebody has written to a tensor since it was staged:
        the file would hold neither the one state nor the other."""
        with _writing(url) as folder:
            _check_free(folder)
            contents = _write(folder, self.data)
            for name, tensor in self.tensors.items():
                if _version(tensor) != self.versions[name]:
                    raise CheckpointError(
                        f"the tensor {name} was written to while it was saved: units must not share tensors, "
                        "so make models and optimizers anew for each, and give nothing to two of them"
                    )
            return _completed(folder, contents, url, origin)


def is_divided(state: Mapping[str, Any]) -> bool:
    """Whether ranks hold parts of the state's tensors, so that each has to save its own."""
    return any(map(tree.is_divided, tree.tensors_in(state)))


def save_part(state: Mapping[str, Any], url: str, part: Part) -> dict[str, Content]:
    """As ``save``, what one rank writes of a state whose tensors are divided over ranks, as ``DTensor``s: its
    part, and if it is the first all the rest of its state, too. It is no checkpoint before ``complete``."""
    data = _part_data(state, part)
    with _writing(url) as folder:
        _check_free(folder)
        return _write(folder, data)


def complete(contents: Mapping[str, Content], url: str, origin: Origin | None = None) -> CheckpointRef:
    """Write the manifest: the files with these ``contents`` are the checkpoint."""
    with _writing(url) as folder:
        return _completed(folder, contents, url, origin)


def restore(state: Mapping[str, Any], ref: CheckpointRef, origin: Origin | None = None) -> None:
    """Put the damaged checkpoint ``ref`` back in its place, ``state`` being what it held.

    Raises ``CheckpointError`` and writes nothing if it held another; else as ``save``.
    """
    data = _data(state)
    _check_same(manifest.ref(ref.url, {name: digest(file) for name, file in data.items()}), ref)
    with _writing(ref.url) as folder:
        _completed(folder, _write(folder, data), ref.url, origin)


def put_back(made: CheckpointRef, ref: CheckpointRef, origin: Origin | None = None) -> None:
    """Move ``made``, which was written beside the damaged checkpoint ``ref``, to its place.

    Raises ``CheckpointError`` and moves nothing if ``made`` holds another state than ``ref`` did.
    """
    _check_same(made, ref)
    with _reading(made) as source, _writing(ref.url) as folder:
        contents = _contents(source, made)
        for name, expected in contents.items():
            _check(source / name, expected, write(folder / name, _Copy(source / name)))
        settle(folder)
        _completed(folder, contents, ref.url, origin)
    remove(made)


def load(ref: CheckpointRef, part: Part | None = None) -> Any:
    """The saved state, each file read once and checked on the way; tensors are fresh, on the CPU.

    For a rank that wants its ``part`` only, tensors that were saved in as many parts have its rows; all
    others, and those saved in another number of parts, are whole.

    Raises ``DamagedCheckpoint`` if a file is missing, cut short or damaged, ``StorageError`` if that
    cannot be known.
    """
    with _reading(ref) as folder:
        contents = _contents(folder, ref)
        text = read(folder / TREE)
        _check(folder / TREE, contents[TREE], digest([text]))
        saved = json.loads(text)
        layout = _specs(saved["tensors"])
        flat = tensors.empty(layout)
        _read(folder / TENSORS, contents[TENSORS], layout, flat)
        if "parts" in saved:
            flat |= _divided(folder, contents, saved["parts"], part)
    return tree.unflatten(saved["state"], flat)


def verify(ref: CheckpointRef) -> None:
    """Raise ``DamagedCheckpoint`` unless every file is there with the size and digest it was saved with."""
    with _reading(ref) as folder:
        for name, expected in _contents(folder, ref).items():
            _check(folder / name, expected, content(folder / name))


def origin(ref: CheckpointRef) -> Origin | None:
    """What the manifest of ``ref`` says of where it comes from, if it says anything. Raises as ``load``."""
    with _reading(ref) as folder:
        return manifest.origin(read(folder / MANIFEST), folder / MANIFEST)


def origins(url: str) -> Iterator[tuple[str, Origin | None]]:
    """Of all checkpoints below the folder ``url`` whose manifests can be read, also those that no record
    names: where each is, from that folder on, and where it comes from."""
    with translated(CheckpointError, f"cannot read the checkpoints in {url}"):
        root = locate(url)
        for path in sorted(sizes(root)):
            place = replace(root, path=path)
            if path.endswith(f"/{MANIFEST}"):
                with suppress(FileNotFoundError, DamagedCheckpoint):
                    name = path.removeprefix(root.path).removesuffix(MANIFEST).strip("/")
                    yield name, manifest.origin(read(place), place)


def remove(ref: CheckpointRef) -> None:
    """Delete the checkpoint, its manifest first; nothing happens if it is gone already."""
    with translated(CheckpointError, f"cannot delete the checkpoint {ref.url}"):
        folder = locate(ref.url)
        files.remove(folder / MANIFEST)
        files.remove(folder)


def _data(state: Mapping[str, Any]) -> dict[str, Sequence[Chunk]]:
    """The files of ``state`` but for the manifest, by name."""
    return _files(*_flat(state))


def _flat(state: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    values, flat = tree.flatten(state)
    if any(map(tree.is_divided, flat.values())):
        raise CheckpointError("the state has tensors that are divided over ranks: each rank saves its part")
    return values, flat


def _version(tensor: Tensor) -> int:
    """How often it was written to, whoever shares its memory; unknown (0) of what inference mode has made."""
    return 0 if tensor.is_inference() else tensor._version


def _files(values: Any, flat: Mapping[str, Tensor]) -> dict[str, Sequence[Chunk]]:
    layout = tensors.specs(flat)
    return {
        TENSORS: _file(layout, flat),
        TREE: [manifest.compact({"tensors": _listed(layout), "state": values})],
    }


def _part_data(state: Mapping[str, Any], part: Part) -> dict[str, Sequence[Chunk]]:
    """The files of one rank's part of ``state``, by name."""
    values, flat = tree.flatten(state)
    divided: dict[str, Any] = {name: tensor for name, tensor in flat.items() if tree.is_divided(tensor)}
    full = tensors.specs(divided)
    own = {name: tensor.to_local().detach().cpu().contiguous() for name, tensor in divided.items()}
    layout = [spec.of(part) for spec in full]
    data = {_part_name(part.index): _file(layout, own)}
    if part.index > 0:
        return data
    rest = {name: tensor for name, tensor in flat.items() if name not in divided}
    others = tensors.specs(rest)
    told = {
        "tensors": _listed(others),
        "parts": {"count": part.count, "tensors": _listed(full)},
        "state": values,
    }
    return data | {TENSORS: _file(others, rest), TREE: [manifest.compact(told)]}


def _file(layout: Sequence[Spec], flat: Mapping[str, Tensor]) -> Sequence[Chunk]:
    return [tensors.header(layout), *tensors.memory(layout, flat)]


def _part_name(index: int) -> str:
    return f"part-{index}.safetensors"


def _listed(layout: Iterable[Spec]) -> list[Any]:
    return [(spec.name, str(spec.dtype).removeprefix("torch."), spec.shape) for spec in layout]


def _specs(listed: Iterable[Any]) -> list[Spec]:
    return [Spec(name, getattr(torch, dtype), tuple(shape)) for name, dtype, shape in listed]


@contextmanager
def _writing(url: str) -> Iterator[Place]:
    with translated(CheckpointError, f"cannot write the checkpoint {url}"):
        yield locate(url)


def _check_free(folder: Place) -> None:
    if exists(folder / MANIFEST):
        raise CheckpointError(
            f"{folder} already holds a checkpoint, and checkpoints never change: save elsewhere"
        )


def _write(folder: Place, data: Mapping[str, Sequence[Chunk]]) -> dict[str, Content]:
    """The files but for the manifest, which may come when their names are durable: when this returns."""
    contents = {name: write(folder / name, file) for name, file in data.items()}
    settle(folder)
    return contents


def _completed(
    folder: Place, contents: Mapping[str, Content], url: str, origin: Origin | None
) -> CheckpointRef:
    write(folder / MANIFEST, [manifest.text(contents, origin)])
    settle(folder)
    return manifest.ref(url, contents)


def _read(file: Place, expected: Content, layout: Sequence[Spec], flat: Mapping[str, Tensor]) -> None:
    """Fill the tensors ``flat`` of ``layout`` from a file."""
    targets = [memoryview(bytearray(len(tensors.header(layout)))), *tensors.memory(layout, flat)]
    _check(file, expected, read_into(file, targets))


def _divided(
    folder: Place, contents: Mapping[str, Content], parts: Mapping[str, Any], part: Part | None
) -> dict[str, Tensor]:
    """The tensors that were saved in parts: the rows of ``part``, if there were as many, else all."""
    full = _specs(parts["tensors"])
    if part is not None and part.count == parts["count"]:
        layout = [spec.of(part) for spec in full]
        flat = tensors.empty(layout)
        _read(folder / _part_name(part.index), contents[_part_name(part.index)], layout, flat)
        return flat
    flat = tensors.empty(full)
    for each in (Part(index, parts["count"]) for index in range(parts["count"])):
        layout = [spec.of(each) for spec in full]
        rows = {spec.name: flat[spec.name][each.rows(spec.shape[0])] for spec in full}
        name = _part_name(each.index)
        _read(folder / name, contents[name], layout, rows)
    return flat


@contextmanager
def _reading(ref: CheckpointRef) -> Iterator[Place]:
    with translated(CheckpointError, f"cannot read the checkpoint {ref.url}"):
        try:
            yield locate(ref.url)
        except FileNotFoundError as exc:
            raise DamagedCheckpoint(
                f"a file of the checkpoint {ref.url} is missing ({exc}): {manifest.ADVICE}"
            ) from exc


def _contents(folder: Place, ref: CheckpointRef) -> dict[str, Content]:
    """What the manifest says of the other files."""
    return manifest.contents(read(folder / MANIFEST), folder / MANIFEST, ref)


class _Copy:
    """A file's bytes, which can be gone over again."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __iter__(self) -> Iterator[bytes]:
        return chunks(self._place)


def _check_same(made: CheckpointRef, ref: CheckpointRef) -> None:
    if (made.digest, made.bytes) != (ref.digest, ref.bytes):
        raise CheckpointError(
            f"{ref.url} cannot be put back: it held a state of digest {ref.digest} ({ref.bytes} bytes), this "
            f"one has {made.digest} ({made.bytes} bytes)"
        )


def _check(place: Place, expected: Content, found: Content) -> None:
    if found != expected:
        what = "cut short" if found.bytes < expected.bytes else "damaged"
        raise DamagedCheckpoint(f"{place} is {what}: expected {expected}, found {found}; {manifest.ADVICE}")
