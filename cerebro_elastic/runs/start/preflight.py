"""The check before a run starts: of the user's code with every config, and of the data.

``python -m cerebro_elastic.runs.start.preflight`` does it in its own process, because it imports torch and
the user's modules, and the leader's process imports neither. If requested, the process then checks whether
units equal an ordinary fit (``check_configs.py``)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_elastic import registry
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.data.manifest import Manifest, read_manifest, verify_sizes
from cerebro_elastic.data.reading.batches import batch_count
from cerebro_elastic.data.shards.classes import missing_classes
from cerebro_elastic.errors import CerebroError, RecipeError, TaskError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.folds import Folds, why_no_folds
from cerebro_elastic.recipes.loggers import lightning_loggers, tracker_arguments
from cerebro_elastic.recipes.search import flattened
from cerebro_elastic.registry import is_library, users_file, users_modules, users_name
from cerebro_elastic.reporting.tables import bytes_text
from cerebro_elastic.runs.from_recipe import batches_in, spec_without_run, start_of, strategies, validations
from cerebro_elastic.runs.start.places import find_probe, probe
from cerebro_elastic.runs.start.prepare_data import (
    deal_dataset,
    import_sources,
    open_recipe,
    prepare_recipe,
)
from cerebro_elastic.runs.start.script_settings import Settings, refuse_others, settings_here
from cerebro_elastic.runs.start.shared_memory import refuse_shared_memory
from cerebro_elastic.system.explanations import explain_error, frames_first, has_frames, shortened
from cerebro_elastic.system.files import in_a_hurry
from cerebro_elastic.system.process import Scratch
from cerebro_elastic.system.source_code import code_digest, digests_in, imported_by
from cerebro_elastic.system.subprocess_call import Answer, SubprocessCall, serve

if TYPE_CHECKING:
    from cerebro_elastic.data.reading.datasets import NumberedDatasets
    from cerebro_elastic.training.task import Task


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """The data and the code with which a run starts."""

    data: str
    """Folder or URL of the prepared data."""
    data_digest: str
    partitions: int
    validations: int
    """The number of partitions that separate units could evaluate for each config."""
    code: Mapping[str, str]
    """The digest of each of the user's files, and of those that the task reads, by its path below the
    recipe's folder or, elsewhere, by its path."""
    notes: Sequence[str] = ()
    """Notes for people on the first batch."""
    differing: Mapping[str, str] = field(default_factory=dict)
    """``Spec.differing``."""


@dataclass(frozen=True, slots=True)
class CheckMode:
    """The mode of the check that follows the preflight."""

    folder: str
    """The folder of states during the check."""
    beside: bool
    """Whether a run starts beside it."""


def preflight(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    *,
    prepare: bool,
    env: Mapping[str, str] | None = None,
) -> PreflightResult:
    """Check the task with every config, and the dataset at ``data``, which is prepared first if ``prepare``;
    train and validate the first batch, unless the recipe or ``CEREBRO_CHECK`` says ``off``. Raises each
    problem as a ``RecipeError``, ``TaskError``, ``DataError``, ... ``env`` is as for ``call``."""
    result, process = preflight_and_check(recipe, hparams, data, prepare=prepare, mode=None, env=env)
    process.end()
    return result


def preflight_and_check(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    *,
    prepare: bool,
    mode: CheckMode | None,
    env: Mapping[str, str] | None = None,
) -> tuple[PreflightResult, SubprocessCall]:
    """The preflight, and its process, which with a ``mode`` then checks whether units equal an ordinary fit.
    Each further answer is a ``CheckedConfig``, or names the next ``PART`` of the check. The first batch comes
    first only if a run starts ``beside`` it."""
    source = recipe.source
    request = {
        "recipe": recipe.resolved(),
        "root": str(recipe.root),
        "label": source.label,
        "places": [[list(path), place] for path, place in source.places.items()],
        "hparams": list(map(dict, hparams)),
        "data": data,
        "prepare": prepare,
        "first_batch": check_policy(recipe) != "off" if mode is None else mode.beside,
        "mode": None if mode is None else asdict(mode),
        "caller": asdict(settings_here(recipe)),
    }
    with probe(recipe) as request["probe"]:
        process = SubprocessCall(__name__, "the check of recipe and data", request, env)
        try:
            return PreflightResult(**process.answer()), process
        except BaseException:
            process.end()
            raise


PART = "part"
"""The key of an answer that names a part of the check."""
VARIABLE = "CEREBRO_CHECK"
"""The environment variable that overrides the recipe's ``check``."""


def check_policy(recipe: Recipe) -> str:
    """The ``check`` of the recipe, or of the environment."""
    return os.environ.get(VARIABLE) or recipe.check


def _recipe_of(request: Mapping[str, Any]) -> Recipe:
    """The recipe with the lines of its file, for messages."""
    recipe = load_recipe(request["recipe"], root=request["root"])
    places = {tuple(path): place for path, place in request["places"]}
    return recipe.placed(recipe.root, replace(recipe.source, label=request["label"], places=places))


def check(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    *,
    prepare: bool,
) -> PreflightResult:
    """``preflight``, in this process."""
    from cerebro_elastic.training.hparams import check_hparams, checked_dataset, task_hparams
    from cerebro_elastic.training.task import HasNotes, ReadsFiles, SupportsPrecheck, WeighsLosses
    from cerebro_elastic.training.unit_runner import loader_settings, loss_weights, make_task

    task, allowed = make_task(recipe), strategies(recipe)
    if recipe.task.ARRAYS == "torch":
        from cerebro_elastic.training.parallel.base import make_parallelism

        for strategy in allowed:  # it may be unusable, or not usable with these options
            make_parallelism(strategy.parallelism, strategy.options)
    loader = loader_settings(recipe)
    _check_loggers(recipe)
    for point in hparams:
        check_hparams(task, loader, point)
    of_task = [task_hparams(task, loader, point) for point in hparams]
    said = task.notes(of_task[0]) if isinstance(task, HasNotes) and of_task else ()
    folders: dict[str, Sequence[str]] = {}
    if isinstance(task, ReadsFiles) and of_task:
        domains = flattened(recipe.search.space).items()
        later = [{**of_task[0], name: value} for name, domain in domains for value in domain.choice or ()]
        folders = {name: files for point in [*of_task, *later] for name, files in task.files(point).items()}
    datasets = checked_dataset(recipe, hparams)
    if datasets is not None and datasets.module is not None and any(each.ranks > 1 for each in allowed):
        from cerebro_elastic.data.reading.datasets import check_divisible

        check_divisible(datasets.reference, datasets.module)
    only = allowed[0] if len(allowed) == 1 and allowed != (Strategy(),) else None
    if only is not None and isinstance(task, SupportsPrecheck) and of_task:
        refusal = task.refusal(of_task[0], only)
        if refusal:
            raise RecipeError(f"parallelism: {only} cannot train the model: {refusal}")
    if recipe.validates_apart:
        _check_apart(recipe, task, of_task, allowed)
    opens = prepare and recipe.data.shards is not None
    if opens:
        data, prepare = open_recipe(recipe, data), False
    manifest = _checked_data(recipe, datasets, data, prepare=prepare)
    lacking = missing_classes(manifest, recipe.data.label) if opens and recipe.data.label else ()
    refuse_shared_memory(recipe.root)
    if recipe.folds:
        _check_folds(recipe.folds, manifest, data)
    loader.check(manifest.columns)
    for point in hparams:
        _check_batches(recipe, manifest, point)
    _check_cache(recipe, manifest)
    if loss_weights(recipe, manifest) and isinstance(task, WeighsLosses):
        task.check_weights(allowed)
    if recipe.search.start is not None and Strategy() in allowed:
        # In a grid the first and the last config differ in every value.
        check_start(recipe, [*hparams[:1], *hparams[1:][-1:]], data, manifest)
    differing: Mapping[str, str] = {}
    if loader.calls_user:
        from cerebro_elastic.runs.exactness.made_twice import differing_of

        differing = differing_of(recipe, hparams[0] if hparams else {}, data, manifest)
    return PreflightResult(
        data=data,
        data_digest=manifest.digest,
        partitions=len(manifest.train),
        validations=validations(recipe, manifest) if task.evaluates else 0,
        code=code_of(recipe.root) | digests_in(folders, recipe.root),
        notes=[*said, *_moved_by_folds(recipe, manifest), *lacking, *differing.values()],
        differing=differing,
    )


def _moved_by_folds(recipe: Recipe, manifest: Manifest) -> Sequence[str]:
    """Notes on the fetches of folds besides training, if they are validated within it."""
    if not recipe.folds or recipe.validates_apart:
        return ()
    size = bytes_text(sum(partition.bytes for partition in manifest.train))
    return [
        "a fold is validated at the end of each epoch's last unit, on that unit's node, which fetches the "
        f"fold's partitions: each host comes to hold all {size} of the training data. `validation: {{folds: "
        f"{recipe.folds}, when: evaluate}}` validates them where they lie, if nothing watches validation"
    ]


def _check_apart(
    recipe: Recipe, task: Task, hparams: Sequence[Mapping[str, Any]], allowed: Sequence[Strategy]
) -> None:
    """Raise ``RecipeError`` if the task cannot be validated by separate units."""
    from cerebro_elastic.training.task import WatchesValidation

    why = None
    if not task.evaluates and not (isinstance(recipe.validation, Folds) and recipe.validation.when is None):
        why = "it has nothing to evaluate with"
    elif recipe.data.datamodule is not None:
        why = "a data module validates by loaders of its own"
    elif isinstance(task, WatchesValidation):
        why = next(filter(None, (task.why_not_apart(point, allowed) for point in hparams)), None)
    if why is not None:
        raise RecipeError(
            f"validation is 'evaluate', and this task of kind {recipe.task.kind!r} cannot be validated so: "
            f"{why}; or validate at the end of each epoch's last unit: `validation: epoch`, with folds "
            "`when: epoch`"
        )


def _check_folds(folds: int, manifest: Manifest, data: str) -> None:
    """Raise ``RecipeError`` if the dataset cannot have this number of folds."""
    if problem := why_no_folds(folds, len(manifest.train)):
        raise RecipeError(f"validation: {problem} of {data}")
    if manifest.valid:
        raise RecipeError(
            f"validation: {folds} folds, and the dataset {data} has validation data of its own, which no "
            "config would see: prepare it without (`valid: 0`, `--valid 0`), or leave the folds out"
        )
    if manifest.folds % folds:
        raise RecipeError(
            f"validation: {folds} folds, and the rows of {data} were dealt to {manifest.folds} folds by "
            f"classes or groups, which {folds} would cut through: take {manifest.folds}, or prepare it again"
        )


def _check_batches(recipe: Recipe, manifest: Manifest, hparams: Mapping[str, Any]) -> None:
    """Raise ``DataError`` if a partition has no whole batch, and short ones are left out. Estimated rows are
    checked when they are counted."""
    if not manifest.estimated:
        batch_count(min(manifest.rows), *batches_in(recipe, manifest, hparams))


def _check_cache(recipe: Recipe, manifest: Manifest) -> None:
    """Raise ``RecipeError`` if a host could not even cache one partition."""
    limit = recipe.node.cache_bytes
    largest = max(map(manifest.cached_bytes, manifest.train))
    if limit is not None and limit < largest:
        raise RecipeError(
            f"node.cache_bytes is {limit}, and the largest partition has {largest} bytes: allow at least "
            "twice as much for each node of a host, or use more partitions"
        )


def _check_loggers(recipe: Recipe) -> None:
    """Make the loggers that may refuse to work once, to find errors early. The run makes them in their own
    processes."""
    if specs := lightning_loggers(recipe.loggers):
        registry.load("cerebro.loggers", "lightning")(specs, recipe.name, recipe.root, Path())
    for name, arguments in tracker_arguments(recipe.loggers).items():
        registry.load("cerebro.trackers", name)(recipe.name, "", "", **arguments)


def _checked_data(recipe: Recipe, datasets: NumberedDatasets | None, url: str, *, prepare: bool) -> Manifest:
    if prepare and datasets is not None:
        deal_dataset(recipe, datasets, url)
    elif prepare:
        prepare_recipe(recipe, url)
    else:  # its code counts, even if its data are prepared
        import_sources(recipe)
    manifest = read_manifest(url)
    verify_sizes(url, manifest)
    return manifest


def code_of(root: Path) -> dict[str, str]:
    """The digests of the user's files that are imported, now or when their code runs: by their common names
    on all machines, or by their paths if they are elsewhere, like those of an editable package."""
    imported = list(sys.modules.values())  # __getattr__ of a lazy module would import it
    modules = [Path(file) for m in imported if (file := getattr(m, "__dict__", {}).get("__file__"))]
    found: dict[str, Path] = {}
    while modules:
        file = modules.pop()
        name = users_name(file, root) or _name_elsewhere(file)
        if name is not None and name not in found and (place := users_file(name, root)) is not None:
            found[name] = place
            modules += [own for each in imported_by(place) for own in users_modules(each, place, root)]
    return {name: code_digest(found[name]) for name in sorted(found)}


def _name_elsewhere(file: Path) -> str | None:
    """The path of a file outside all environments. ``None`` for a file that a library has written to a new
    folder: its name differs in each process."""
    if is_library(str(file)) or not file.is_file() or is_library(str(file.resolve())):
        return None
    folder = file.parent
    new = folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(tempfile.gettempprefix())
    return None if new else str(file.absolute())


def _check_here(request: dict[str, Any]) -> dict[str, Any]:
    with in_a_hurry():
        recipe = _recipe_of(request)
        if recipe.checkpoints is not None:
            find_probe(recipe.rooted(recipe.checkpoints), request["probe"])
        os.environ.update(recipe.task.environment)  # Keras reads its backend when a file imports it
        try:
            refuse_others(recipe, Settings(**request["caller"]))
            result = check(recipe, request["hparams"], request["data"], prepare=request["prepare"])
            request["data"] = result.data
        except CerebroError:
            raise
        except (Exception, SystemExit) as error:
            explained = explain_error(error, recipe.root)
            if not has_frames(explained):
                raise
            raise TaskError(frames_first(shortened(explained))) from error
    if request["first_batch"]:
        result = replace(result, notes=[*result.notes, *_check_first_batch(request)])
    return asdict(result)


def _check_first_batch(request: Mapping[str, Any]) -> Sequence[str]:
    from cerebro_elastic.runs.exactness.first_batch import check_first_batch

    url = request["data"]
    return check_first_batch(_recipe_of(request), request["hparams"], url, read_manifest(url))


def _check_exactness(request: Mapping[str, Any], answer: Answer) -> None:
    if (mode := request["mode"]) is None:
        return
    from cerebro_elastic.runs.exactness.check_configs import check_configs

    def say(text: str) -> None:
        answer({PART: text})

    recipe, points, data = _recipe_of(request), request["hparams"], request["data"]
    for checked in check_configs(recipe, points, data, mode["folder"], say, beside=mode["beside"]):
        answer(checked.as_json())


def check_start(recipe: Recipe, points: Sequence[HParams], data: str, manifest: Manifest) -> None:
    """Begin a unit with the recipe's checkpoint and each of the ``points``, and stop it after a batch.

    Raises ``RecipeError`` for a model that does not accept it, ``CheckpointError`` if it cannot be read.
    """
    from cerebro_elastic.hop import checkpoint
    from cerebro_elastic.training.task import Stopped
    from cerebro_elastic.training.unit_runner import UnitRunner

    start = start_of(recipe)
    assert start is not None
    plan = Plan("preflight", len(manifest.train), recipe.epochs, seed=recipe.seed, start=start)
    spec = spec_without_run(recipe, plan, data, manifest.digest)
    with Scratch("check") as scratch:
        runner = UnitRunner(spec, scratch.path, "cpu")
        runner.use_threads()
        for point in points:
            config = born(Config("c0000", point, parent=start))
            state = checkpoint.load(start.checkpoint)
            job = runner.job(config, next_units(config, plan)[0], state, stop=lambda _done: True)
            try:
                runner.perform(job)
            except Stopped:
                pass  # it has trained a batch
            except Exception as exc:
                raise RecipeError(
                    f"{recipe.source.where(('search', 'start'))}: a model with {dict(point)} does not take "
                    f"the checkpoint {start.checkpoint.url}, which was made with {dict(start.hparams)}: "
                    f"{type(exc).__name__}: {exc}; search only what its state can bear to have changed"
                ) from exc


if __name__ == "__main__":
    serve(_check_here, _check_exactness)
