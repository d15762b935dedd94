"""The user's functions, compiled once for each shape of a batch and for what is static in a config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.tasks import HParams, Taker, check_taken, known_names, select_arguments
from cerebro_jax.section import JaxSection
from cerebro_jax.trees import Structure, merged, split, structure_of

_INIT = frozenset({"key", "epochs", "steps"})


@dataclass(frozen=True)
class Compiled:
    """What trains all configs that differ in fractions alone."""

    structure: Structure
    """What is trained."""
    step: Any
    """``(tree, batch, key, fractions) -> (tree, metrics)``."""
    evaluate: Any
    """``(tree, batch, fractions) -> metrics``."""


class UserFunctions:
    """``init_fn``, ``step_fn`` and ``eval_fn``.

    Fractions (floats) among the hyper-parameters are arguments of the compiled functions, so that configs
    that differ in a learning rate share them. All other values are static.
    """

    def __init__(self, section: JaxSection, root: Path) -> None:
        self._section = section
        self._init = import_object(section.init_fn, root)
        self._step = import_object(section.step_fn, root)
        self._eval = import_object(section.eval_fn, root) if section.eval_fn else None
        self._takers: dict[str, Taker] = {
            "init_fn": (self._init, _INIT),
            "step_fn": (self._step, frozenset({"key"}) | _leading(self._step)),
        }
        if self._eval is not None:
            self._takers["eval_fn"] = (self._eval, _leading(self._eval))
        self._compiled: dict[Any, Compiled] = {}

    @property
    def evaluates(self) -> bool:
        """Whether there is an ``eval_fn``."""
        return self._eval is not None

    def check(self, hparams: HParams) -> None:
        """Raise ``TaskError`` for hyper-parameters that no function takes, or that one misses."""
        check_taken(self._takers, self._section.args, hparams, _INIT)

    def takes(self, name: str) -> bool:
        """Whether a function takes a hyper-parameter of this name."""
        known = known_names(self._takers.values())
        return known is None or name in known

    def initial(self, values: Mapping[str, Any], seed: int) -> Any:
        """The tree of arrays with which a config begins."""
        return split(self._made(values, jax.random.key(seed)))[1]

    def compiled(self, values: Mapping[str, Any]) -> Compiled:
        """The functions for a config; ``values`` are its hyper-parameters, ``args`` and budget."""
        static = tuple(sorted((name, repr(v)) for name, v in values.items() if not isinstance(v, float)))
        if static not in self._compiled:
            structure = structure_of(lambda: self._made(values, jax.random.key(0)))
            fixed = {name: value for name, value in values.items() if not isinstance(value, float)}
            self._compiled[static] = self._compile(structure, fixed)
        return self._compiled[static]

    def values(self, hparams: HParams, epochs: int, steps: int) -> dict[str, Any]:
        """All that the functions may ask for by name."""
        given = {**self._section.args, **hparams}
        return {**given, **select_arguments(self._init, {"epochs": epochs, "steps": steps})}

    def _made(self, values: Mapping[str, Any], key: Any) -> Any:
        return self._init(**select_arguments(self._init, {**values, "key": key}))

    def _compile(self, structure: Structure, fixed: Mapping[str, Any]) -> Compiled:
        def step(tree: Any, batch: Any, key: Any, fractions: Mapping[str, Any]) -> Any:
            named = select_arguments(self._step, {**fixed, **fractions, "key": key})
            if structure.graphdef is None:
                return _pair(self._step(tree, batch, **named), self._section.step_fn)
            objects = merged(structure, tree)
            metrics = self._step(*_unpacked(objects), batch, **named)
            return split(objects)[1], metrics

        def evaluate(tree: Any, batch: Any, fractions: Mapping[str, Any]) -> Any:
            assert self._eval is not None
            named = select_arguments(self._eval, {**fixed, **fractions})
            objects = merged(structure, tree)
            leading = (tree,) if structure.graphdef is None else _unpacked(objects)
            return self._eval(*leading, batch, **named)

        return Compiled(structure, jax.jit(step, donate_argnums=0), jax.jit(evaluate))


def fractions_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are no static ones."""
    return {name: value for name, value in values.items() if isinstance(value, float)}


def _unpacked(objects: Any) -> tuple[Any, ...]:
    return objects if isinstance(objects, tuple) else (objects,)


def _leading(function: Any) -> frozenset[str]:
    """The parameters without a default up to the one called ``batch``: they get the state and the batch."""
    names = list(inspect.signature(function).parameters)
    if "batch" not in names:
        raise TaskError(f"{function.__name__} has no parameter `batch`: it takes the state, then the batch")
    return frozenset(names[: names.index("batch") + 1])


def _pair(returned: Any, name: str) -> Any:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        return returned
    raise TaskError(f"{name} returned a {type(returned).__name__}: expected (state, metrics by name)")
