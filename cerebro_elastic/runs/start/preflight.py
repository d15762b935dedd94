"""What is checked before a run starts: the user's code with every config, and the data.

``python -m cerebro_elastic.runs.start.preflight`` does it in a process of its own, because it imports
torch and the user's modules, and the process that leads a run imports neither. It reads a request
and writes an answer, both one JSON object. If it is asked to, it then goes on to check whether units equal an
ordinary fit (``check_configs.py``).
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_elastic import registry
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.data.manifest import Manifest, read_manifest, verify_sizes
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.files import in_a_hurry, locate, redacted, remove, translated, write
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.registry import is_own
from cerebro_elastic.rendezvous.admission import content_digest
from cerebro_elastic.runs.from_recipe import strategies
from cerebro_elastic.runs.start.datasets import import_sources, prepare_recipe
from cerebro_elastic.runs.start.first_batch import check_start
from cerebro_elastic.runs.subprocess_call import SubprocessCall, ask, serve

if TYPE_CHECKING:
    from cerebro_elastic.training.task import SupportsPrecheck


@dataclass(frozen=True, slots=True)
class Findings:
    """What the preflight found: the data as prepared, and the digest of each of the user's files."""

    data: str
    data_digest: str
    partitions: int
    validations: int
    code: Mapping[str, str]


def preflight(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    *,
    prepare: bool,
) -> Findings:
    """Check the task against every config and the dataset at ``data``, which is made first if
    ``prepare``. Raises what is wrong: a ``RecipeError``, ``TaskError``, ``DataError``, ..."""
    return Findings(**ask(__name__, _WHAT, _request(recipe, hparams, data, prepare)))


def preflight_and_check(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    *,
    prepare: bool,
    extent: Mapping[str, Any],
) -> tuple[Findings, SubprocessCall]:
    """The same, and the process, which goes on and checks whether units equal an ordinary fit: to such an
    ``extent`` (``check_configs.Extent``). Each further answer is a ``Checked``."""
    request = {**_request(recipe, hparams, data, prepare), "extent": extent}
    asked = SubprocessCall(__name__, _WHAT, request)
    try:
        return Findings(**asked.answer()), asked
    except BaseException:
        asked.end()
        raise


_WHAT = "the check of recipe and data"


def _request(
    recipe: Recipe, hparams: Sequence[Mapping[str, Any]], data: str, prepare: bool
) -> dict[str, Any]:
    return {
        "recipe": recipe.resolved(),
        "root": str(recipe.root),
        "hparams": list(map(dict, hparams)),
        "data": data,
        "prepare": prepare,
    }


def check(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    *,
    prepare: bool,
) -> Findings:
    """What ``preflight`` does, in this process."""
    from cerebro_elastic.parallel.choose import make as make_parallelism
    from cerebro_elastic.training.task import SupportsPrecheck
    from cerebro_elastic.training.unit_runner import loader_settings, make_task

    task, allowed = make_task(recipe), strategies(recipe)
    for strategy in allowed:
        make_parallelism(strategy.parallelism, strategy.options)
    loader_settings(recipe)
    _check_loggers(recipe)
    for point in hparams:
        task.check(point)
    if len(allowed) == 1 and allowed != (Strategy(),) and isinstance(task, SupportsPrecheck):
        _check_choice(task, allowed[0], hparams)
    if recipe.validation == "evaluate" and not task.evaluates:
        raise RecipeError(
            f"validation is 'evaluate', but a task of kind {recipe.task.kind!r} validates at the end of each "
            "epoch's last unit: use validation: epoch"
        )
    manifest = _checked_data(recipe, data, prepare=prepare)
    if recipe.checkpoints is not None:
        check_writable(recipe.rooted(recipe.checkpoints))
    if recipe.search.start is not None and Strategy() in allowed:
        # Of a grid these differ in all that there is to choose.
        check_start(recipe, [*hparams[:1], *hparams[1:][-1:]], data, manifest)
    return Findings(
        data=data,
        data_digest=manifest.digest,
        partitions=len(manifest.train),
        validations=len(manifest.valid),
        code=_code(recipe.root),
    )


def _check_choice(task: SupportsPrecheck, strategy: Strategy, hparams: Sequence[Mapping[str, Any]]) -> None:
    """There is nothing else to try: does it suit the first config's model? The others' will be like that."""
    refusal = task.refusal(hparams[0], strategy) if hparams else None
    if refusal:
        raise RecipeError(f"parallelism: {strategy.label} cannot train the model: {refusal}")


def _check_loggers(recipe: Recipe) -> None:
    """Whether those of Lightning can be made; the run makes them in a process of their own."""
    others = [logger for logger in recipe.loggers or () if logger != "tensorboard"]
    if others:
        registry.load("cerebro.loggers", "lightning")(others, recipe.name, recipe.root, Path())


def check_writable(url: str) -> None:
    """Whether checkpoints can be written to ``url``: tried, not guessed. Raises ``RecipeError`` if there is
    no such place, ``StorageError`` if it cannot be reached or refuses."""
    with translated(RecipeError, f"checkpoints cannot be written to {redacted(url)}"):
        probe = locate(url) / f"probe-{uuid.uuid4().hex}"
        try:
            write(probe, [b"can this be written?"])
        except FileNotFoundError as exc:
            raise RecipeError(
                f"checkpoints cannot be written to {redacted(url)}: there is no such bucket; create it, or "
                "correct `checkpoints` in the recipe"
            ) from exc
        remove(probe)


def _checked_data(recipe: Recipe, url: str, *, prepare: bool) -> Manifest:
    if prepare:
        prepare_recipe(recipe, url)
    else:  # its code counts, even if its data are there
        import_sources(recipe)
    manifest = read_manifest(url)
    verify_sizes(url, manifest)
    return manifest


def _code(root: Path) -> dict[str, str]:
    """The digests of the user's files below ``root`` that were imported, by their paths there."""
    files = {Path(file) for module in sys.modules.values() if (file := getattr(module, "__file__", None))}
    own = sorted(file.resolve() for file in files if is_own(file, root))
    return {str(file.relative_to(root.resolve())): content_digest(file) for file in own}


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    with in_a_hurry():
        found = check(
            load_recipe(request["recipe"], root=request["root"]),
            request["hparams"],
            request["data"],
            prepare=request["prepare"],
        )
    return asdict(found)


def _then(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if (extent := request.get("extent")) is None:
        return
    from cerebro_elastic.runs.exactness.check_configs import Extent, check_configs

    recipe = load_recipe(request["recipe"], root=request["root"])
    for checked in check_configs(recipe, request["hparams"], request["data"], Extent(**extent)):
        yield checked.as_json()


if __name__ == "__main__":
    serve(_asked, _then)
