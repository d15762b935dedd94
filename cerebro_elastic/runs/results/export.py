"""``cerebro export``: takes a trained model out of a run, as files that do not need this package."""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.core.history.lineage import history
from cerebro_elastic.core.history.progress import at_end
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import CheckpointRef, Phase, RecordHead
from cerebro_elastic.data.manifest import Manifest, check_unchanged
from cerebro_elastic.errors import DataError, RunError, StorageError, TaskError
from cerebro_elastic.hop.checkpoint.tree import is_tensor
from cerebro_elastic.reporting.card import Card
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.runs.exactness.outcome import RunExactness
from cerebro_elastic.runs.results.result import RunResult, check_here, load_picked
from cerebro_elastic.system.files import Place, copy, exists, is_folder, locate, redacted, sizes, translated
from cerebro_elastic.system.process import Scratch, is_alive
from cerebro_elastic.training.hparams import task_hparams
from cerebro_elastic.training.task import Exported, Exports, ExportsMerged
from cerebro_elastic.training.unit_runner import loader_settings, make_task

CHECKPOINT, RECORD, CARD = "model.ckpt", "record.json", "README.md"


@dataclass(frozen=True, slots=True)
class ExportedConfig:
    """An exported config."""

    row: ConfigResult
    at: Config = field(repr=False)
    """The config as it was at the end of the exported epoch."""
    ref: CheckpointRef
    """The checkpoint of that epoch."""
    visits: Sequence[Visit] = field(repr=False)
    """The visits that led to it, those of its ancestors included."""
    not_carried: Sequence[str] = ()
    """The parts of the state that the exported files do not have."""


def export(
    result: RunResult, folder: str | Path, config: str = "best", *, merged: bool = False
) -> ExportedConfig:
    """``Run.export``, of a ``result``."""
    where = redacted(str(folder))
    with translated(RunError, f"cannot write to {where}"):
        place = locate(str(folder))
        if exists(place) and (
            not is_folder(place) or sizes(place) or (place.local and os.listdir(place.path))
        ):
            raise RunError(f"{where} is not empty: choose another folder, or remove it")

    def pick(live: RunResult) -> tuple[ExportedConfig, CheckpointRef]:
        picked = _pick(live, live.training(config))
        check_here(live, modules=live.spec.root, checkpoints=live.spec.storage)
        return picked, picked.ref

    result, picked, state = load_picked(result, pick)
    exported = _exported(result, picked, state, merged=merged)
    fold, folds = picked.at.fold, result.spec.plan.folds
    if fold is not None:
        left_out = (
            f"what the rows of fold {fold} of {folds} would have taught: {picked.row.config} was validated "
            "on them (for a model of all rows, run its hyper-parameters without folds)"
        )
        exported = replace(exported, not_carried=(*exported.not_carried, left_out))
    manifest = _manifest(result)
    if manifest is None:
        unknown = f"what the data's columns and codes stand for: {redacted(result.spec.data)} cannot be read"
        exported = replace(exported, not_carried=(*exported.not_carried, unknown))
    with translated(RunError, f"cannot write to {where}"), _written_at_once(place) as temporary:
        _write(temporary, exported, result, picked, manifest)
    return replace(picked, not_carried=exported.not_carried)


@contextmanager
def _written_at_once(place: Place) -> Iterator[Path]:
    """A folder of this machine whose files are those of ``place`` after the block. At a URL the model card is
    written last."""
    if not place.local:
        with Scratch("export") as scratch:
            yield scratch.path
            for file in sorted(scratch.path.iterdir(), key=lambda file: file.name == CARD):
                copy(locate(str(file)), place / file.name)
        return
    folder = Path(place.path)
    temporary = folder.with_name(f".{folder.name}.tmp-{os.getpid()}")
    _remove_left(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def origin_of_export(folder: Path) -> tuple[str, RecordHead | None, RunExactness]:
    """The config exported to ``folder``, the head of the record at that time (``None`` if it was a store's),
    and the state of the check."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        head = record["record"]
        exactness = RunExactness.of_json(record["exactness"])
        return str(record["config"]), RecordHead(**head) if head is not None else None, exactness
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise RunError(f"{folder} has no {RECORD} of an exported model: {exc}") from exc


def _remove_left(temporary: Path) -> None:
    """Remove the files that killed processes left beside it, by their ids."""
    stem = temporary.name.removesuffix(str(os.getpid()))
    for left in temporary.parent.glob(f"{glob.escape(stem)}*"):
        process = left.name.removeprefix(stem)
        if process.isdecimal() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _pick(result: RunResult, row: ConfigResult) -> ExportedConfig:
    state, visits = result.view.state, result.view.visits
    ends = epoch_ends(state.curves.get(row.config, ()))
    end = ends[-1 if row.best_place is None else row.best_place] if ends else None
    ref = end.checkpoint if end is not None else None
    if end is None or ref is None or (row.best_epoch is None and ref != row.checkpoint):
        raise RunError(
            f"config {row.config!r} of run {result.run!r} has no state at the end of an epoch that is kept: "
            "that of its best epoch is, and that of its last one until it continues; wait for its epoch's end"
        )
    steps = history(row.config, state.configs, visits, result.spec.plan, until=ref)
    at = at_end(state.configs[row.config], end)
    return ExportedConfig(row, at, ref, [visit for _, visit in steps])


def _exported(result: RunResult, picked: ExportedConfig, state: Any, *, merged: bool) -> Exported:
    task = make_task(result.recipe)
    if not isinstance(task, Exports):
        raise TaskError(
            f"the task {result.recipe.task.kind!r} does not say how its models are exported: its adapter "
            "needs a method `export` (see training/task.py)"
        )
    make = task.export
    if merged:
        if not isinstance(task, ExportsMerged):
            raise TaskError(
                f"a model of the task {result.recipe.task.kind!r} has no adapter to merge into a base: "
                "export it without --merged"
            )
        make = task.export_merged
    last = [v for v in picked.visits if v.unit.epoch == picked.at.epoch - 1 and v.unit.phase is Phase.TRAIN]
    return make(
        task_hparams(task, loader_settings(result.recipe), picked.row.hparams),
        state,
        result.spec.plan.seed_of(picked.at.repeat),
        result.spec.plan.epochs,
        batches=sum(visit.batches for visit in last),
    )


def _manifest(result: RunResult) -> Manifest | None:
    """The dataset's manifest, if it still exists unchanged."""
    with suppress(DataError, StorageError):
        return check_unchanged(result.spec.data, result.spec.data_digest)
    return None


def _write(
    folder: Path, exported: Exported, result: RunResult, picked: ExportedConfig, manifest: Manifest | None
) -> None:
    record = _record(result, picked, exported.not_carried, manifest)
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    parameters = _save_weights(exported.weights, folder / exported.file)
    shutil.copymode(folder / RECORD, folder / exported.file)  # the library would make it private
    for name, content in exported.further.items():
        (folder / name).write_bytes(content)
    if exported.checkpoint is not None:
        import torch

        torch.save(dict(exported.checkpoint), folder / CHECKPOINT)
    card = Card(
        spec=result.spec,
        configs=len(result.leaderboard),
        row=picked.row,
        at=picked.at,
        visits=picked.visits,
        parameters=parameters,
        load=exported.load.replace("MODEL", exported.file).replace("CHECKPOINT", CHECKPOINT),
        files=sorted(path.name for path in folder.iterdir()),
        lost=exported.not_carried,
        record=result.head,
        exactness=result.exactness.text,
        matter=exported.card,
        features=manifest.features if manifest is not None else (),
        vocabulary=manifest.vocabulary if manifest is not None else {},
    )
    (folder / CARD).write_text(card.markdown(), encoding="utf-8")


def _save_weights(weights: Mapping[str, Any], file: Path) -> int:
    """Write tensors of torch, or else arrays. Returns the count of their numbers."""
    if any(is_tensor(weight) for weight in weights.values()):
        from safetensors.torch import save_file as save_tensors

        tensors = {name: weight.contiguous().clone() for name, weight in weights.items()}
        save_tensors(tensors, file, metadata={"format": "pt"})
        return sum(tensor.numel() for tensor in tensors.values())
    from safetensors.numpy import save_file as save_arrays

    arrays = {name: np.ascontiguousarray(weight) for name, weight in weights.items()}
    save_arrays(arrays, file, metadata={"format": "np"})
    return sum(array.size for array in arrays.values())


def _record(
    result: RunResult, picked: ExportedConfig, lost: Sequence[str], manifest: Manifest | None
) -> dict[str, Any]:
    """The model's origin, for machines."""
    row, spec = picked.row, result.spec
    licence = result.recipe.data.license
    data: dict[str, Any] = {"url": spec.data, "digest": spec.data_digest, "license": licence}
    if manifest is not None:
        data |= {
            "columns": [asdict(column) for column in manifest.columns],
            "features": manifest.features,
            "vocabulary": manifest.vocabulary,
        }
    return {
        "run": spec.plan.run,
        "config": row.config,
        "hparams": dict(row.hparams),
        "epoch": picked.at.epoch,
        "metrics": [dict(metrics) for metrics in row.curve],
        "test": asdict(row.test) if row.test is not None else None,
        "seed": spec.plan.seed_of(picked.at.repeat),
        "recipe": dict(spec.recipe),
        "data": data,
        "code": dict(spec.code),
        "state": asdict(picked.ref),
        "visits": [asdict(visit) for visit in picked.visits],
        "not_carried": list(lost),
        "record": asdict(result.head) if result.head is not None else None,
        "exactness": result.exactness.as_json(),
    }
