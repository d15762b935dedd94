"""The task adapter for JAX (entry point ``jax`` of ``cerebro.tasks``): ``docs/how-to/frameworks.md`` lists
the arguments and results of the user's functions."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.tasks import (
    ArrayTask,
    EpochMeans,
    Exported,
    HParams,
    Learner,
    Taker,
    TaskState,
    UnitBatches,
    UnitJob,
    as_found,
    generators,
    process_settings,
    select_arguments,
)
from cerebro_jax.program import Program, Structure, fractions_of, static_of
from cerebro_jax.section import JaxSection

_REFUSED = frozenset(
    (
        "jax_debug_infs",
        "jax_debug_nans",
        "jax_default_matmul_precision",
        "jax_default_prng_impl",
        "jax_disable_jit",
        "jax_enable_custom_prng",
        "jax_enable_x64",
        "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion",
        "jax_random_seed_offset",
        "jax_softmax_custom_jvp",
        "jax_threefry_partitionable",
    )
)
"""Settings that may change the result of training."""


def _config_value(name: str) -> Any:
    value = getattr(jax.config, name)
    return value.value if isinstance(value, Enum) else value


SETTINGS = tuple(
    process_settings.Setting(
        f"jax.config.{name}", partial(_config_value, name), partial(jax.config.update, name), name in _REFUSED
    )
    for name in sorted(jax.config.values)
    if hasattr(jax.config, name)
)


class JaxTask(ArrayTask):
    """Trains by the functions of ``section``. Compiled functions serve all units of a rank."""

    settings = SETTINGS

    def __init__(self, section: JaxSection, root: Path) -> None:
        names = {"init_fn": section.init_fn, "step_fn": section.step_fn, "eval_fn": section.eval_fn}
        self._functions = {role: import_object(name, root) for role, name in names.items() if name}
        self._structures: dict[Any, Structure] = {}
        self._programs: dict[Any, Program] = {}
        init, *others = self._functions.items()
        takers: dict[str, Taker] = {role: (function, _leading(function)) for role, function in others}
        super().__init__({init[0]: (init[1], frozenset({"key"})), **takers}, section.args)

    @property
    def evaluates(self) -> bool:
        return "eval_fn" in self._functions

    def set_threads(self, threads: int) -> None:
        """XLA's threads on the CPU; JAX reads the number when it first computes, and not later."""
        if threads == 1:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()

    def learner(self, job: UnitJob) -> JaxLearner:
        program, structure, tree = self._prepared(job)
        return JaxLearner(program, structure, tree, fractions_of(self._used_values(job)), job)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """All arrays by path, the optimizer's included."""
        del hparams, seed, epochs, batches
        return Exported(dict(state["arrays"]), _LOAD)

    def _used_values(self, job: UnitJob) -> dict[str, Any]:
        """The hyper-parameters that a function takes: configs that differ in the others alone share a
        program."""
        values = self.values(job)
        return {
            k: v
            for function in self._functions.values()
            for k, v in select_arguments(function, values).items()
        }

    def _prepared(self, job: UnitJob) -> tuple[Program, Structure, Any]:
        """The program and the structure of the job's config, and its tree of arrays. Objects that ``init_fn``
        makes besides arrays serve this config alone, and so does a program that was compiled with them."""
        init, step, *others = self._functions.values()
        values = self._used_values(job)
        taken = select_arguments(init, {**values, "key": None})
        config = job.seed, repr(sorted(taken.items()))
        made = self._made(values, job.seed) if job.state is None else None
        if config not in self._structures:
            self._structures[config] = Structure(self._made_again(values, job.seed) if made is None else made)
        structure = self._structures[config]
        key = static_of(values), None if structure.holds_arrays_alone else config
        if key not in self._programs:
            self._programs[key] = Program(step, others[0] if others else None, values, structure)
        if job.state is None:
            return self._programs[key], structure, structure.begin(made)
        tree = structure.load(job.state["arrays"], job.state["kinds"])
        return self._programs[key], structure, tree

    def _made_again(self, values: Mapping[str, Any], seed: int) -> Any:
        """Call ``init_fn`` again, as in the config's first unit."""
        with generators.borrowed():
            generators.seed_all(seed)
            return self._made(values, seed)

    def _made(self, values: Mapping[str, Any], seed: int) -> Any:
        init = self._functions["init_fn"]
        return init(**select_arguments(init, {**values, "key": jax.random.key(seed)}))


class JaxLearner(Learner):
    """A tree of arrays, and the program that trains it."""

    def __init__(
        self,
        program: Program,
        structure: Structure,
        tree: Any,
        fractions: Mapping[str, float],
        job: UnitJob,
    ) -> None:
        state = job.state
        self._program, self._structure, self._tree = program, structure, tree
        self._fractions = fractions
        self._key = jax.random.fold_in(jax.random.key(job.seed), 1)
        self._step = 0 if state is None else state["step"]
        if state is None:
            self.found = as_found({"arrays": structure.dump(tree)[0]})
        self._means = EpochMeans(None if state is None or job.begins_epoch else state["means"])

    def learn(self, batches: UnitBatches) -> Mapping[str, float]:
        pending = []
        for batch in batches:
            key = jax.random.fold_in(self._key, self._step)
            self._tree, metrics = self._program.step(self._tree, batch, key, self._fractions)
            pending.append((metrics, _rows(batch)))
            self._step += 1
        for metrics, rows in pending:  # read after all steps, which JAX computes in the background
            self._means.add(metrics, rows)
        return self._means.values("train_")

    def measure(self, batches: Iterator[Any]) -> Mapping[str, float]:
        means = EpochMeans()
        for batch in batches:
            means.add(self._program.evaluate(self._tree, batch, None, self._fractions), _rows(batch))
        return means.values()

    def state(self) -> Mapping[str, Any]:
        arrays, kinds = self._dumped
        return {"arrays": arrays, "kinds": kinds, "means": self._means.state()}

    def arrays(self) -> Mapping[str, Any]:
        return self._dumped[0]

    @cached_property
    def _dumped(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Dump the tree; called after ``learn``, when it is final."""
        return self._structure.dump(self._tree)


def _rows(batch: Any) -> int:
    return len(jax.tree_util.tree_leaves(batch)[0])


def _leading(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters up to the one called ``batch``, which get the state and the batch, and ``key``."""
    names = list(inspect.signature(function).parameters)
    if "batch" not in names:
        raise TaskError(f"{function.__name__} has no parameter `batch`: it takes the state, then the batch")
    return frozenset({*names[: names.index("batch") + 1], "key"})


_LOAD = """\
from safetensors.numpy import load_file

arrays = load_file("MODEL")  # by their paths in the result of init_fn
"""
