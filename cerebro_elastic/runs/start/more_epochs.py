"""Would a training have been the same so far if it had had more epochs from the start?

``python -m cerebro_elastic.runs.start.more_epochs`` checks that in a process of its own, as ``preflight``
does, and whether the checkpoints are there from which configs go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CheckpointError, RunError
from cerebro_elastic.system.devices import CPU
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.system.words import counted

_BATCHES = 2
_SHOWN = 8


def check_lengths(spec: Spec, configs: Mapping[str, Config], epochs: int) -> None:
    """Check that the ``configs`` of the run ``spec`` can go on to ``epochs`` epochs.

    Raises:
        RunError: A checkpoint is gone or damaged, or something of the training depends on the number of
            epochs. The message names each.
    """
    if not configs:
        return
    answer = _checked(spec, list(configs.values()), epochs)
    run, longer = spec.plan.run, counted(epochs, "epoch")
    if gone := answer["gone"]:
        raise RunError(
            f"configs of run {run!r} cannot go on from checkpoints that are gone:\n{_lines(gone)}\n"
            "restore them, or name other configs"
        )
    if readers := answer["readers"]:
        raise RunError(
            f"run {run!r} cannot be extended to {longer}: this depends on their number, and would have been "
            f"different from the first epoch on:\n{_lines(readers)}\n"
            f"name other configs, or start a run of that length: cerebro run RECIPE --epochs "
            f"{epochs} --run-id NAME"
        )


def length_readers(spec: Spec, configs: Sequence[Config], epochs: int) -> list[str]:
    """What of the training of these ``configs`` depends on the number of epochs, by a text for each: it would
    have been different in the run ``spec`` with ``epochs``, which are more."""
    readers: list[str] = _checked(spec, configs, epochs)["readers"]
    return readers


def _checked(spec: Spec, configs: Sequence[Config], epochs: int) -> dict[str, Any]:
    request = {"spec": encode(spec), "configs": [encode(config) for config in configs], "epochs": epochs}
    return call(__name__, "the check of what depends on the number of epochs", request)


def _lines(texts: list[str]) -> str:
    more = [f"  and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "\n".join([*(f"  {text}" for text in texts[:_SHOWN]), *more])


def check_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a ``request``, in this process."""
    spec = decode(request["spec"], Spec)
    configs = [decode(config, Config) for config in request["configs"]]
    begun = [config for config in configs if config.head is not None]
    longer = [c for c in begun if request["epochs"] > spec.epochs_of(c.id, max(c.epoch - 1, 0))]
    readers = list(_readers(spec, longer, request["epochs"])) if longer else []
    return {"gone": [text for config in configs for text in _gone(config)], "readers": readers}


def _gone(config: Config) -> Iterator[str]:
    from cerebro_elastic import checkpoint

    if config.head is not None:
        try:
            checkpoint.verify(config.head)
        except CheckpointError as error:
            yield f"{config.id}: {error}"


def _readers(spec: Spec, configs: list[Config], epochs: int) -> Iterator[str]:
    """By one config of each shape."""
    from cerebro_elastic.data.manifest import read_manifest
    from cerebro_elastic.runs.exactness.check_configs import representative_configs, small_jobs
    from cerebro_elastic.training.task import ReadsLength
    from cerebro_elastic.training.unit_runner import make_task

    recipe = spec.load_recipe()
    task = make_task(recipe)
    if not isinstance(task, ReadsLength):
        yield f"a task of kind {recipe.task.kind} does not say what depends on the number of epochs"
        return
    rows = read_manifest(spec.data).rows
    points = representative_configs([config.hparams for config in configs], len(configs))
    for point in points:
        name = next(config.id for config in configs if config.hparams == point)
        jobs = small_jobs(task, recipe, spec.data, point, _BATCHES, CPU)
        first = [replace(job, epochs=spec.plan.epochs) for job in jobs if job.unit.epoch == 0]
        for text in task.length_readers(first, rows, epochs):
            yield f"{name}: {text}"


if __name__ == "__main__":
    serve(check_here)
