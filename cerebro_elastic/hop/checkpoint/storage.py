"""Checkpoints on any fsspec URL: immutable, verified by digest, loaded without unpickling.

A checkpoint is a folder. ``tensors.safetensors`` has the tensors, ``tree.json`` the rest of the state.
``manifest.json`` is written last and gives the size and sha256 of the others: a folder without it is no
checkpoint. A ``CheckpointRef``'s digest is the sha256 of that, which is a function of the state alone: equal
states, equal digests. Beside it the manifest may name the origin of the state (``core/model/origin.py``).

Tensors that training leaves as they are lie beside all checkpoints, in bases (``bases.py``); the manifest
says where. The digest covers their bytes, not their place.

If ranks held parts of the state's tensors, each has written its own: ``part-<k>.safetensors`` has the rows of
rank k, and ``tree.json`` lists the tensors and the number of parts. Such a state can be read whole, or in
part by one of as many ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint, PrunedCheckpoint
from cerebro_elastic.hop.checkpoint import bases, manifest, tensors, tree
from cerebro_elastic.hop.checkpoint.manifest import ADVICE, Manifest, Still
from cerebro_elastic.hop.checkpoint.tensors import Json, Leaf, Part, TensorsDigest, TensorSpec
from cerebro_elastic.system import files
from cerebro_elastic.system.files import (
    Chunk,
    Content,
    Hashing,
    Place,
    Sha256,
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
"""The note in place of a checkpoint that was removed to save space: its author and date."""
TENSORS = "tensors.safetensors"
TREE = "tree.json"
NOTHING: Mapping[str, Still] = MappingProxyType({})
"""No tensor lies in a base."""


def save(state: Mapping[str, Any], url: str, origin: Origin | None = None) -> CheckpointRef:
    """Write ``state`` under ``url``, a fresh name.

    Others can read it when this returns; a power cut in the middle leaves no checkpoint, or the whole one.

    Args:
        state: The state to save; it must not change meanwhile.
        url: A folder on any fsspec URL.
        origin: Where the state comes from, for the manifest.

    Raises:
        CheckpointError: ``state`` has a value that cannot be stored (see ``tree``), or ``url`` is taken.
        StorageError: Writing failed.
        DiskFull: The storage has no space left.
    """
    return stage(state).save(url, origin)


def stage(state: Mapping[str, Any]) -> Staged:
    """Prepare a save of ``state``, so that it can be saved beside the next unit.

    Values that are no tensors, and tensors on another device, are copied. Tensors on the host are not: the
    save checks that nothing has written to them. Raises as ``save``.
    """
    values, flat = tree.flatten(state)
    if any(map(tensors.is_divided, flat.values())):
        raise CheckpointError("the state has tensors that are divided over ranks: each rank saves its part")
    return Staged(values, flat, {name: _version(tensor) for name, tensor in flat.items()})


@dataclass(frozen=True)
class Staged:
    """A state that is ready to be saved, once."""

    values: Json
    """The state but for its arrays and tensors."""
    leaves: Mapping[str, Leaf]
    """The state's arrays and tensors by name."""
    versions: Mapping[str, int]
    """How often each tensor had been written to when it was staged."""

    @property
    def bytes(self) -> int:
        """The size of the arrays and tensors."""
        return sum(tensor.nbytes for tensor in self.leaves.values())

    def save(
        self, url: str, origin: Origin | None = None, before: Mapping[str, Still] = NOTHING
    ) -> CheckpointRef:
        """As ``save``.

        Args:
            url: The folder.
            origin: The origin of the state.
            before: Tensors by name as they were when the unit began. Unchanged ones go into the run's bases;
                ``url`` is ``<storage>/checkpoints/<config>/<name>`` then.

        Raises ``CheckpointError``, too, if a tensor was written to since it was staged: the file would hold
        neither the one state nor the other.
        """
        with _writing(url) as folder:
            _check_free(folder)
            stays = bases.kept(bases.folder_of(folder), before, self.leaves) if before else {}
            contents = _write(folder, _files(self.values, self.leaves, stays))
            for name, tensor in self.leaves.items():
                if _version(tensor) != self.versions[name]:
                    raise CheckpointError(
                        f"the tensor {name} was written to while it was saved: units must not share tensors, "
                        "so make models and optimizers for each unit"
                    )
            return _completed(folder, contents, url, origin, stays)


def is_divided(state: Mapping[str, Any]) -> bool:
    """Whether ranks hold parts of the state's tensors, so that each has to save its own."""
    return any(map(tensors.is_divided, tree.leaves_in(state)))


@dataclass(frozen=True)
class Written:
    """Files of a checkpoint that has no manifest yet."""

    contents: Mapping[str, Content]
    """Their content, by name."""
    stays: Mapping[str, Still]
    """The tensors that lie in bases, by name."""


def save_part(
    state: Mapping[str, Any], url: str, part: Part, before: Mapping[str, Still] = NOTHING
) -> Written:
    """Write one rank's part of a state of which some tensors are divided over ranks, as ``DTensor``s.

    The first rank also writes the rest of its state; ``before`` is as in ``Staged.save``. It is no checkpoint
    before ``complete``. Raises as ``save``.
    """
    values, flat = tree.flatten(state)
    divided: dict[str, Any] = {name: leaf for name, leaf in flat.items() if tensors.is_divided(leaf)}
    whole = {name: leaf for name, leaf in flat.items() if name not in divided}
    with _writing(url) as folder:
        _check_free(folder)
        files, stays = _rows_file(divided, part), dict[str, Still]()
        if part.index == 0:
            stays = bases.kept(bases.folder_of(folder), before, whole) if before else stays
            parts = {"count": part.count, "tensors": _listed(tensors.specs(divided))}
            files |= _files(values, whole, stays, parts)
        return Written(_write(folder, files), stays)


def complete(written: Sequence[Written], url: str, origin: Origin | None = None) -> CheckpointRef:
    """Write the manifest of the files that all ranks have ``written``: now they are a checkpoint."""
    contents = {name: content for each in written for name, content in each.contents.items()}
    stays = {name: still for each in written for name, still in each.stays.items()}
    with _writing(url) as folder:
        return _completed(folder, contents, url, origin, stays)


def restore(state: Mapping[str, Any], ref: CheckpointRef, origin: Origin | None = None) -> None:
    """Write the damaged checkpoint ``ref`` again in its place, from its ``state``, so that it needs no base.
    A damaged base is deleted: the next save that needs it writes it again.

    Raises ``CheckpointError`` and writes nothing if it held another state; else as ``save``.
    """
    ready = stage(state)
    data = _files(ready.values, ready.leaves, NOTHING)
    contents = {name: digest(file.data, file.hashing) for name, file in data.items()}
    _check_same(manifest.ref(ref.url, contents, NOTHING), ref)
    with _writing(ref.url) as folder:
        _remove_damaged_bases(folder, ref)
        _completed(folder, _write(folder, data), ref.url, origin)


def put_back(copy: CheckpointRef, ref: CheckpointRef, origin: Origin | None = None) -> None:
    """Move ``copy``, which was written beside the damaged checkpoint ``ref``, to its place. A damaged base is
    deleted as in ``restore``.

    Raises ``CheckpointError`` and moves nothing if ``copy`` holds another state than ``ref`` did.
    """
    _check_same(copy, ref)
    with _reading(copy) as source, _writing(ref.url) as folder:
        _remove_damaged_bases(folder, ref)
        contents, stays = _contents(source, copy)
        hashing = _hashing(source, contents, stays)
        for name, expected in contents.items():
            written = write(folder / name, files.FileChunks(source / name), hashing.get(name, Sha256))
            _check(source / name, expected, written)
        settle(folder)
        _completed(folder, contents, ref.url, origin, stays)
    remove(copy)


def _remove_damaged_bases(folder: Place, ref: CheckpointRef) -> None:
    with suppress(DamagedCheckpoint, FileNotFoundError):
        _, stays = _contents(folder, ref)
        for base in bases.damaged(bases.folder_of(folder), stays):
            files.remove(base)


def is_mapped(leaf: Leaf) -> bool:
    """Whether an array or tensor on the CPU lies in a base that is mapped into memory, as it is."""
    return bases.any_mapped() and bases.mapped_as(bases.bytes_of(leaf)) is not None


def adopt(ref: CheckpointRef, url: str) -> CheckpointRef:
    """Have the checkpoint ``ref`` of another run at ``url``, too, with the bases that it needs. Files are
    linked where that is possible, and not read: see ``verify``. Raises as ``load``."""
    with _reading(ref) as source, _writing(url) as folder:
        contents, stays = _contents(source, ref)
        bases.copy(bases.folder_of(source), bases.folder_of(folder), stays)
        for name in (*contents, MANIFEST):
            files.copy(source / name, folder / name)
        settle(folder)
    return replace(ref, url=url)


def stays_in(state: Mapping[str, Any] | None) -> dict[str, Still]:
    """The tensors that lie in bases, by name, of a state that was loaded and not trained since."""
    if state is None or not bases.any_mapped():
        return {}
    _, flat = tree.flatten(state, copies=False)
    memory = {name: bases.bytes_of(leaf) for name, leaf in flat.items() if not tensors.is_divided(leaf)}
    return {name: still for name, each in memory.items() if (still := bases.mapped_as(each)) is not None}


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
        contents, stays = _contents(folder, ref)
        saved = _saved(folder, contents)
        layout, arrays = _specs(saved["tensors"]), set(tree.arrays_in(saved["state"]))
        here = [spec for spec in layout if spec.name not in stays]
        flat = tensors.empty(here, arrays)
        memory = bases.memory_of(bases.folder_of(folder), stays)
        flat |= {
            spec.name: tensors.over(memory[spec.name], spec, array=spec.name in arrays)
            for spec in layout
            if spec.name in stays
        }
        _read(folder / TENSORS, contents[TENSORS], here, flat, _digest_of(layout, stays))
        if "parts" in saved:
            flat |= _divided(folder, contents, saved["parts"], part)
    return tree.unflatten(saved["state"], flat)


def fetch_bases(ref: CheckpointRef) -> None:
    """Bring this host's copies of the bases that the checkpoint needs. Raises as ``load``."""
    with _reading(ref) as folder:
        bases.memory_of(bases.folder_of(folder), _contents(folder, ref)[1])


def verify(ref: CheckpointRef) -> None:
    """Raise ``DamagedCheckpoint`` unless every file exists, with the size and digest it was saved with."""
    with _reading(ref) as folder:
        contents, stays = _contents(folder, ref)
        hashing = _hashing(folder, contents, stays)
        for name, expected in contents.items():
            _check(folder / name, expected, content(folder / name, hashing.get(name, Sha256)))
        bases.verify(bases.folder_of(folder), stays)


def origin(ref: CheckpointRef) -> Origin | None:
    """Where the state of ``ref`` comes from, if its manifest has that. Raises as ``load``."""
    with _reading(ref) as folder:
        return manifest.read(read(folder / MANIFEST), folder / MANIFEST).origin


def manifests(url: str) -> Iterator[tuple[str, Manifest | DamagedCheckpoint]]:
    """All checkpoints below the folder ``url``, also those that no record names: their path in that folder,
    and their manifests, or how they differ from what was written."""
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
    """Delete the files of the checkpoint at ``url``. The ``note`` stays: a reader gets it instead."""
    with translated(CheckpointError, f"cannot delete the checkpoint {url}"):
        folder = locate(url)
        write(folder / PRUNED, [note.encode()])
        files.remove(folder / MANIFEST)
        for path in sizes(folder):
            if not path.endswith(f"/{PRUNED}"):
                files.remove(replace(folder, path=path))


def sweep(url: str) -> None:
    """Delete the bases that no checkpoint below ``url`` (``<storage>/checkpoints``) needs."""
    needed: set[str] = set()
    for _, found in manifests(url):
        if isinstance(found, DamagedCheckpoint):
            return  # it may need any
        needed |= found.bases
    with translated(CheckpointError, f"cannot delete the bases beside {url}"):
        home = bases.folder_of(locate(url) / "config" / "name")
        for path in sizes(home):
            if path.rpartition("/")[2] not in needed:
                files.remove(replace(home, path=path))


def _version(leaf: Leaf) -> int:
    """How often its memory was written to. Arrays were copied when they were staged: nobody writes there."""
    if isinstance(leaf, np.ndarray):
        return 0
    from cerebro_elastic.hop.checkpoint.torch_values import version

    return version(leaf)


@dataclass(frozen=True)
class _File:
    """A file of a checkpoint to write."""

    data: Sequence[Chunk]
    hashing: Hashing = Sha256


def _files(
    values: Json,
    leaves: Mapping[str, Leaf],
    stays: Mapping[str, Still],
    parts: Mapping[str, Json] | None = None,
) -> dict[str, _File]:
    """The files of a state except the manifest, by name. ``parts`` names the tensors that ranks have written
    beside them."""
    layout = tensors.specs(leaves)
    here = [spec for spec in layout if spec.name not in stays]
    document = {"tensors": _listed(layout), **({} if parts is None else {"parts": parts}), "state": values}
    return {
        TENSORS: _File(_data(here, leaves), _digest_of(layout, stays)),
        TREE: _File([manifest.compact(document)]),
    }


def _rows_file(divided: Mapping[str, Any], part: Part) -> dict[str, _File]:
    """The file of one rank's rows of the ``divided`` tensors."""
    from cerebro_elastic.hop.checkpoint.torch_values import local_rows

    rows: dict[str, Leaf] = {name: local_rows(tensor) for name, tensor in divided.items()}
    layout = [spec.of(part) for spec in tensors.specs(divided)]
    return {_part_name(part.index): _File(_data(layout, rows))}


def _data(layout: Sequence[TensorSpec], flat: Mapping[str, Leaf]) -> Sequence[Chunk]:
    return [tensors.header(layout), *tensors.memory(layout, flat)]


def _digest_of(layout: Sequence[TensorSpec], stays: Mapping[str, Still]) -> Hashing:
    return partial(TensorsDigest, layout, {name: still.content for name, still in stays.items()})


def _hashing(
    folder: Place, contents: Mapping[str, Content], stays: Mapping[str, Still]
) -> dict[str, Hashing]:
    """How the files are hashed that are not as any file is."""
    return {TENSORS: _digest_of(_specs(_saved(folder, contents)["tensors"]), stays)}


def _saved(folder: Place, contents: Mapping[str, Content]) -> Any:
    text = read(folder / TREE)
    _check(folder / TREE, contents[TREE], digest([text]))
    return json.loads(text)


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


def _write(folder: Place, data: Mapping[str, _File]) -> dict[str, Content]:
    """The files except the manifest, which may be written once their names are durable: when this returns."""
    contents = {name: write(folder / name, file.data, file.hashing) for name, file in data.items()}
    settle(folder)
    return contents


def _completed(
    folder: Place,
    contents: Mapping[str, Content],
    url: str,
    origin: Origin | None,
    stays: Mapping[str, Still] = NOTHING,
) -> CheckpointRef:
    write(folder / MANIFEST, [manifest.text(contents, origin, stays)])
    settle(folder)
    return manifest.ref(url, contents, stays)


def _read(
    file: Place,
    expected: Content,
    layout: Sequence[TensorSpec],
    flat: Mapping[str, Leaf],
    hashing: Hashing = Sha256,
) -> None:
    """Fill the tensors ``flat`` of ``layout`` from a file."""
    targets = [memoryview(bytearray(len(tensors.header(layout)))), *tensors.memory(layout, flat)]
    _check(file, expected, read_into(file, targets, hashing))


def _divided(
    folder: Place, contents: Mapping[str, Content], parts: Mapping[str, Any], part: Part | None
) -> dict[str, Leaf]:
    """The tensors that were saved in parts: the rows of ``part``, if the parts were as many, else all."""
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
                f"a file of the checkpoint {ref.url} is missing ({exc}): {ADVICE}"
            ) from exc


def _contents(folder: Place, ref: CheckpointRef) -> tuple[dict[str, Content], dict[str, Still]]:
    """The manifest's entries on the other files, and on tensors in bases."""
    return manifest.contents(read(folder / MANIFEST), folder / MANIFEST, ref)


def _check_same(copy: CheckpointRef, ref: CheckpointRef) -> None:
    if (copy.digest, copy.bytes) != (ref.digest, ref.bytes):
        raise CheckpointError(
            f"{ref.url} cannot be put back: it held a state of digest {ref.digest} ({ref.bytes} bytes), this "
            f"one has {copy.digest} ({copy.bytes} bytes)"
        )


def _check(place: Place, expected: Content, actual: Content) -> None:
    if actual != expected:
        what = "cut short" if actual.bytes < expected.bytes else "damaged"
        raise DamagedCheckpoint(f"{place} is {what}: expected {expected}, found {actual}; {ADVICE}")
