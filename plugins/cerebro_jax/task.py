"""The task adapter for JAX (entry point ``jax`` of ``cerebro.tasks``).

The functions get what they ask for by the name of the parameter:

``init_fn(key, <hyper-parameters>, epochs, steps)``
    makes what is trained: a tree of arrays, such as ``(params, opt_state)``, or objects of Flax NNX, such as
    ``(model, optimizer)``.
``step_fn(state, batch, key, <hyper-parameters>)``
    trains on a batch and returns ``(state, metrics)``. ``key`` is a fresh one for each step. It is compiled.
``eval_fn(state, batch, <hyper-parameters>)``
    (optional) returns metrics of a batch of validation. It is compiled.

With Flax NNX ``step_fn(model, optimizer, batch, ...)`` and ``eval_fn(model, optimizer, batch, ...)`` get the
objects; ``step_fn`` changes them and returns the metrics. Metrics are means over the batch's rows.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import (
    EpochMeans,
    Exported,
    HParams,
    Stopped,
    TaskState,
    UnitJob,
    UnitResult,
    generators,
    job_batches,
    not_finite_arrays,
)
from cerebro_jax.functions import Compiled, UserFunctions, fractions_of
from cerebro_jax.section import JaxSection


class JaxTask:
    """Trains by the functions of ``section``. Compiled functions serve all units of a rank."""

    def __init__(self, section: JaxSection, root: Path) -> None:
        self._section = section
        self._user = UserFunctions(section, root)

    @property
    def evaluates(self) -> bool:
        return self._user.evaluates

    @property
    def splits(self) -> bool:
        return True

    def check(self, hparams: HParams) -> None:
        job_batches.check_batch_size(hparams)
        self._user.check(hparams)

    def takes(self, name: str) -> bool:
        """Whether a function takes a hyper-parameter of this name."""
        return self._user.takes(name)

    def set_threads(self, threads: int) -> None:
        """XLA's on the CPU; they are counted when JAX first computes, and not later."""
        if threads == 1:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()

    def train(self, job: UnitJob) -> UnitResult:
        with generators.borrowed():
            return self._trained(job)

    def _trained(self, job: UnitJob) -> UnitResult:
        values, compiled = self._functions(job)
        fractions, key = fractions_of(values), jax.random.fold_in(jax.random.key(job.seed), 1)
        tree, step, means = self._taken_up(job, compiled, values)
        done, pending = job.skip, []
        with suppress(Stopped):
            for rows, batch in zip(_rows(job), job_batches.training_batches(job), strict=False):
                tree, metrics = compiled.step(tree, batch, jax.random.fold_in(key, step), fractions)
                pending.append((metrics, rows))
                step, done = step + 1, done + 1
        for metrics, rows in pending:  # read behind all steps, which JAX computes in the background
            means.add({name: float(value) for name, value in metrics.items()}, rows)
        whole = done == job_batches.unit_batches(job)
        validation = self._measured(job, compiled, tree, job.validation) if whole and job.validates else {}
        metrics = {**means.values("train_"), **validation}
        arrays = compiled.structure.dump(tree)
        return UnitResult(
            state={
                "arrays": arrays,
                "generators": generators.capture(),
                "means": means.state(),
                "step": step,
            },
            samples=job_batches.rows_until(job, done),
            batches=done - job.skip,
            metrics=metrics,
            log=[{"step": step, "epoch": job.unit.epoch, **metrics}] if whole else [],
            whole=whole,
            not_finite=not_finite_arrays(metrics, arrays.items()) if whole else None,
        )

    def evaluate(self, job: UnitJob) -> UnitResult:
        if not self.evaluates or job.state is None:
            raise TaskError(f"{job.unit}: to evaluate, a task needs an eval_fn, and a trained state")
        with generators.borrowed():
            _, compiled = self._functions(job)
            tree = compiled.structure.load(job.state["arrays"])
            metrics = self._measured(job, compiled, tree, [job.partition])
        return UnitResult(job.state, job.partition.rows, job_batches.unit_batches(job), metrics)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """All arrays by path, those of the optimizer too."""
        del hparams, seed, epochs, batches
        return Exported(dict(state["arrays"]), _LOAD)

    def _functions(self, job: UnitJob) -> tuple[dict[str, Any], Compiled]:
        steps = job.epochs * job_batches.epoch_batches(job)
        values = self._user.values(job.hparams, job.epochs, steps)
        return values, self._user.compiled(values)

    def _taken_up(
        self, job: UnitJob, compiled: Compiled, values: dict[str, Any]
    ) -> tuple[Any, int, EpochMeans]:
        if job.state is None:
            generators.seed_all(job.seed)
            first = self._user.initial(values, job.seed)
            return compiled.structure.load(compiled.structure.dump(first)), 0, EpochMeans()
        generators.restore(job.state["generators"])
        begins = not job.visited and not job.skip
        means = EpochMeans(None if begins else job.state["means"])
        return compiled.structure.load(job.state["arrays"]), job.state["step"], means

    def _measured(self, job: UnitJob, compiled: Compiled, tree: Any, partitions: Any) -> dict[str, float]:
        if not self.evaluates:
            return {}
        values, _ = self._functions(job)
        means, fractions = EpochMeans(), fractions_of(values)
        batches = job_batches.natural_batches(job, partitions)
        for rows, batch in zip(job_batches.batch_rows(job, partitions), batches, strict=True):
            measured = compiled.evaluate(tree, batch, fractions)
            means.add({name: float(value) for name, value in measured.items()}, rows)
        return means.values("val_")


def _rows(job: UnitJob) -> Any:
    return list(job_batches.training_rows(job))[job.skip :]


_LOAD = """\
from safetensors.numpy import load_file

arrays = load_file("MODEL")  # by their paths in what init_fn returns
"""
