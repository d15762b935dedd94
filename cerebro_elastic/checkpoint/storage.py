"""Checkpoints on any fsspec URL: immutable, verified by digest, loaded without unpickling.

A checkpoint is a folder. ``tree.json`` has the state but for its tensors, which ``tensors.safetensors`` has.
``manifest.json`` is written last and gives the size and sha256 of the others: a folder without it is no
checkpoint. A ``CheckpointRef``'s digest is the sha256 of that, which is a function of the state alone: equal
states, equal digests. Beside it the manifest may say where the state comes from (``core/model/origin.py``).

If ranks held parts of the state's tensors, each has written its own: ``part-<k>.safetensors`` has the rows of
rank k, and ``tree.json`` lists the tensors and the number of parts. Such a state can be read whole, or in
part by one of as many ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cerebro_elastic.checkpoint import manifest, tensors, tree
from cerebro_elastic.checkpoint.manifest import Manifest
from cerebro_elastic.checkpoint.tensors import Leaf, Part, TensorSpec
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint, PrunedCheckpoint
from cerebro_elastic.system import files
from cerebro_elastic.system.files import (
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
PRUNED = "pruned.txt"
"""What is left of a checkpoint that was removed to save space: who did it, and when."""
TENSORS = "tensors.safetensors"
TREE = "tree.json"


def save(state: Mapping[str, Any], url: str, origin: Origin | None = None) -> CheckpointRef:
    """Write ``state`` under ``url``, a fresh name.

    Others can read it when this returns; a power cut in the middle leaves no checkpoint, or the whole one.

    Args:
        state: What to save; it must not change meanwhile.
        url: A folder on any fsspec URL.
        origin: Where the state comes from, for the manifest.

    Raises:
        CheckpointError: ``state`` holds what cannot be stored (see ``tree``), or ``url`` is taken.
        StorageError: Writing failed.
        DiskFull: The storage has no space left.
    """
    return stage(state).save(url, origin)


def stage(state: Mapping[str, Any]) -> Staged:
    """Take what a save of ``state`` needs, so that it can be saved beside the next unit.

    Values that are no tensors, and tensors on another device, are copied. Tensors on the host are not: the
    save checks that they have not been written to. Raises as ``save``.
    """
    data, flat = _files(state)
    return Staged(data, flat, {name: _version(tensor) for name, tensor in flat.items()})


@dataclass(frozen=True)
class Staged:
    """A state that is ready to be saved, once."""

    data: Mapping[str, Sequence[Chunk]]
    """The content of each file but the manifest, by name."""
    leaves: Mapping[str, Leaf]
    """The state's arrays and tensors by name."""
    versions: Mapping[str, int]
    """How often each tensor had been written to when it was staged."""

    @property
    def bytes(self) -> int:
        """The size of the arrays and tensors."""
        return sum(tensor.nbytes for tensor in self.leaves.values())

    def save(self, url: str, origin: Origin | None = None) -> CheckpointRef:
        """As ``save``. Raises ``CheckpointError`` if a tensor was written to since it was staged: the file
        would hold neither the one state nor the other."""
        with _writing(url) as folder:
            _check_free(folder)
            contents = _write(folder, self.data)
            for name, tensor in self.leaves.items():
                if _version(tensor) != self.versions[name]:
                    raise CheckpointError(
                        f"the tensor {name} was written to while it was saved: units must not share tensors, "
                        "so make models and optimizers anew for each, and give nothing to two of them"
                    )
            return _completed(folder, contents, url, origin)


def is_divided(state: Mapping[str, Any]) -> bool:
    """Whether ranks hold parts of the state's tensors, so that each has to save its own."""
    return any(map(tensors.is_divided, tree.leaves_in(state)))


def save_part(state: Mapping[str, Any], url: str, part: Part) -> dict[str, Content]:
    """Write one rank's part of a state whose tensors are divided over ranks, as ``DTensor``s.

    The first rank also writes the rest of its state. It is no checkpoint before ``complete``. Returns what
    the files hold; raises as ``save``.
    """
    data, _ = _files(state, part)
    with _writing(url) as folder:
        _check_free(folder)
        return _write(folder, data)


def complete(contents: Mapping[str, Content], url: str, origin: Origin | None = None) -> CheckpointRef:
    """Write the manifest of the files with these ``contents``: now they are a checkpoint."""
    with _writing(url) as folder:
        return _completed(folder, contents, url, origin)


def restore(state: Mapping[str, Any], ref: CheckpointRef, origin: Origin | None = None) -> None:
    """Write the damaged checkpoint ``ref`` again in its place, from its ``state``.

    Raises ``CheckpointError`` and writes nothing if it held another state; else as ``save``.
    """
    data, _ = _files(state)
    _check_same(manifest.ref(ref.url, {name: digest(file) for name, file in data.items()}), ref)
    with _writing(ref.url) as folder:
        _completed(folder, _write(folder, data), ref.url, origin)


def put_back(copy: CheckpointRef, ref: CheckpointRef, origin: Origin | None = None) -> None:
    """Move ``copy``, which was written beside the damaged checkpoint ``ref``, to its place.

    Raises ``CheckpointError`` and moves nothing if ``copy`` holds another state than ``ref`` did.
    """
    _check_same(copy, ref)
    with _reading(copy) as source, _writing(ref.url) as folder:
        contents = _contents(source, copy)
        for name, expected in contents.items():
            _check(source / name, expected, write(folder / name, _Copy(source / name)))
        settle(folder)
        _completed(folder, contents, ref.url, origin)
    remove(copy)


def load(ref: CheckpointRef, part: Part | None = None) -> Any:
    """Load a checkpoint, reading each file once and checking it on the way.

    Args:
        ref: The checkpoint.
        part: The rank's part: of tensors that were saved in as many parts, only its rows are loaded. All
            other tensors are loaded whole.

    Returns:
        The state, with fresh arrays and tensors on the CPU.

    Raises:
        DamagedCheckpoint: A file is missing, cut short or damaged.
        StorageError: The storage has a fault, so that this cannot be known.
    """
    with _reading(ref) as folder:
        contents = _contents(folder, ref)
        text = read(folder / TREE)
        _check(folder / TREE, contents[TREE], digest([text]))
        saved = json.loads(text)
        layout = _specs(saved["tensors"])
        flat = tensors.empty(layout, set(tree.arrays_in(saved["state"])))
        _read(folder / TENSORS, contents[TENSORS], layout, flat)
        if "parts" in saved:
            flat |= _divided(folder, contents, saved["parts"], part)
    return tree.unflatten(saved["state"], flat)


def verify(ref: CheckpointRef) -> None:
    """Raise ``DamagedCheckpoint`` unless every file exists, with the size and digest it was saved with."""
    with _reading(ref) as folder:
        for name, expected in _contents(folder, ref).items():
            _check(folder / name, expected, content(folder / name))


def origin(ref: CheckpointRef) -> Origin | None:
    """Where the state of ``ref`` comes from, if its manifest has that. Raises as ``load``."""
    with _reading(ref) as folder:
        return manifest.read(read(folder / MANIFEST), folder / MANIFEST).origin


def manifests(url: str) -> Iterator[tuple[str, Manifest | DamagedCheckpoint]]:
    """All checkpoints below the folder ``url``, also those that no record names: their path in that folder,
    and what their manifests say, or why they are not as they were written."""
    with translated(CheckpointError, f"cannot read the checkpoints in {url}"):
        root = locate(url)
        for path in sorted(sizes(root)):
            place = replace(root, path=path)
            if path.endswith(f"/{MANIFEST}"):
                name = path.removeprefix(root.path).removesuffix(MANIFEST).strip("/")
                try:
                    found: Manifest | DamagedCheckpoint = manifest.read(read(place), place)
                except FileNotFoundError:  # deleted meanwhile
                    continue
                except DamagedCheckpoint as damage:
                    found = damage
                yield name, found


def remove(ref: CheckpointRef) -> None:
    """Delete the checkpoint, its manifest first; nothing happens if it is gone already."""
    with translated(CheckpointError, f"cannot delete the checkpoint {ref.url}"):
        folder = locate(ref.url)
        files.remove(folder / MANIFEST)
        files.remove(folder)


def prune(url: str, note: str) -> None:
    """Delete the files of the checkpoint at ``url``. The ``note`` stays, and whoever reads it gets that."""
    with translated(CheckpointError, f"cannot delete the checkpoint {url}"):
        folder = locate(url)
        write(folder / PRUNED, [note.encode()])
        files.remove(folder / MANIFEST)
        for path in sizes(folder):
            if not path.endswith(f"/{PRUNED}"):
                files.remove(replace(folder, path=path))


def _version(leaf: Leaf) -> int:
    """How often its memory was written to. Arrays were copied when they were staged: nobody writes there."""
    if isinstance(leaf, np.ndarray):
        return 0
    from cerebro_elastic.checkpoint.torch_values import version

    return version(leaf)


def _files(
    state: Mapping[str, Any], part: Part | None = None
) -> tuple[dict[str, Sequence[Chunk]], dict[str, Leaf]]:
    """The files of ``state`` but for the manifest, by name, and the arrays and tensors that are not divided.
    With a ``part``, the files that its rank writes."""
    values, flat = tree.flatten(state)
    divided: dict[str, Any] = {name: leaf for name, leaf in flat.items() if tensors.is_divided(leaf)}
    if divided and part is None:
        raise CheckpointError("the state has tensors that are divided over ranks: each rank saves its part")
    whole = {name: leaf for name, leaf in flat.items() if name not in divided}
    data: dict[str, Sequence[Chunk]] = {}
    parts = {}
    if part is not None:
        from cerebro_elastic.checkpoint.torch_values import local_rows

        full = tensors.specs(divided)
        rows: dict[str, Leaf] = {name: local_rows(tensor) for name, tensor in divided.items()}
        data[_part_name(part.index)] = _file([spec.of(part) for spec in full], rows)
        parts = {"parts": {"count": part.count, "tensors": _listed(full)}}
    if part is None or part.index == 0:
        layout = tensors.specs(whole)
        document = {"tensors": _listed(layout), **parts, "state": values}
        data |= {TENSORS: _file(layout, whole), TREE: [manifest.compact(document)]}
    return data, whole


def _file(layout: Sequence[TensorSpec], flat: Mapping[str, Leaf]) -> Sequence[Chunk]:
    return [tensors.header(layout), *tensors.memory(layout, flat)]


def _part_name(index: int) -> str:
    return f"part-{index}.safetensors"


def _listed(layout: Iterable[TensorSpec]) -> list[Any]:
    return [(spec.name, spec.dtype, spec.shape) for spec in layout]


def _specs(listed: Iterable[Any]) -> list[TensorSpec]:
    return [TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in listed]


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


def _read(file: Place, expected: Content, layout: Sequence[TensorSpec], flat: Mapping[str, Leaf]) -> None:
    """Fill the tensors ``flat`` of ``layout`` from a file."""
    targets = [memoryview(bytearray(len(tensors.header(layout)))), *tensors.memory(layout, flat)]
    _check(file, expected, read_into(file, targets))


def _divided(
    folder: Place, contents: Mapping[str, Content], parts: Mapping[str, Any], part: Part | None
) -> dict[str, Leaf]:
    """The tensors that were saved in parts: the rows of ``part``, if there were as many, else all."""
    full = _specs(parts["tensors"])
    if part is not None and part.count == parts["count"]:
        layout = [spec.of(part) for spec in full]
        flat = tensors.empty(layout, ())
        _read(folder / _part_name(part.index), contents[_part_name(part.index)], layout, flat)
        return flat
    flat = tensors.empty(full, ())
    for saved in (Part(index, parts["count"]) for index in range(parts["count"])):
        layout = [spec.of(saved) for spec in full]
        rows = {spec.name: flat[spec.name][saved.rows(spec.shape[0])] for spec in full}
        name = _part_name(saved.index)
        _read(folder / name, contents[name], layout, rows)
    return flat


@contextmanager
def _reading(ref: CheckpointRef) -> Iterator[Place]:
    with translated(CheckpointError, f"cannot read the checkpoint {ref.url}"):
        try:
            yield locate(ref.url)
        except FileNotFoundError as exc:
            with suppress(FileNotFoundError):
                note = read(locate(ref.url) / PRUNED).decode(errors="replace")
                raise PrunedCheckpoint(f"the checkpoint {ref.url} is not there any more: {note}") from exc
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


def _check_same(copy: CheckpointRef, ref: CheckpointRef) -> None:
    if (copy.digest, copy.bytes) != (ref.digest, ref.bytes):
        raise CheckpointError(
            f"{ref.url} cannot be put back: it held a state of digest {ref.digest} ({ref.bytes} bytes), this "
            f"one has {copy.digest} ({copy.bytes} bytes)"
        )


def _check(place: Place, expected: Content, actual: Content) -> None:
    if actual != expected:
        what = "cut short" if actual.bytes < expected.bytes else "damaged"
        raise DamagedCheckpoint(f"{place} is {what}: expected {expected}, found {actual}; {manifest.ADVICE}")
