"""The user's functions, compiled once for each shape of a batch and for what is static in a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import select_arguments
from cerebro_jax.trees import Structure


class Program:
    """What trains all configs that differ in fractions alone.

    Fractions (floats) among the ``values`` that functions get by name are arguments of the compiled
    functions, so that configs that differ in a learning rate share them. All others are static.
    """

    def __init__(
        self,
        init: Callable[..., Any],
        step: Callable[..., Any],
        evaluate: Callable[..., Any] | None,
        values: Mapping[str, Any],
    ) -> None:
        self._functions = init, step, evaluate
        self._static = {name: value for name, value in values.items() if not isinstance(value, float)}
        self.structure = Structure(partial(self._initialized, values, 0))
        self.step = jax.jit(self._stepped, donate_argnums=0)
        """``(tree, batch, key, fractions) -> (tree, metrics)``."""
        self.evaluate = jax.jit(self._evaluated)
        """``(tree, batch, fractions) -> metrics``."""

    def initial(self, values: Mapping[str, Any], seed: int) -> Any:
        """The tree with which a config begins."""
        return self.structure.tree(self._initialized(values, seed))

    def _initialized(self, values: Mapping[str, Any], seed: int) -> Any:
        init, _, _ = self._functions
        return init(**select_arguments(init, {**values, "key": jax.random.key(seed)}))

    def _stepped(self, tree: Any, batch: Any, key: Any, fractions: Mapping[str, float]) -> Any:
        _, step, _ = self._functions
        merged = self.structure.merged(tree)
        named = select_arguments(step, {**self._static, **fractions, "key": key})
        returned = step(*self.structure.arguments(merged), batch, **named)
        if self.structure.has_objects:
            return self.structure.tree(merged), returned
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
            return returned
        raise TaskError(
            f"{step.__name__} returned a {type(returned).__name__}: expected (state, metrics by name)"
        )

    def _evaluated(self, tree: Any, batch: Any, fractions: Mapping[str, float]) -> Any:
        _, _, evaluate = self._functions
        assert evaluate is not None
        named = select_arguments(evaluate, {**self._static, **fractions})
        return evaluate(*self.structure.arguments(self.structure.merged(tree)), batch, **named)


def static_of(values: Mapping[str, Any]) -> Any:
    """What configs have in common that share a program."""
    return tuple(
        sorted((name, repr(value)) for name, value in values.items() if not isinstance(value, float))
    )


def fractions_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are not static."""
    return {name: value for name, value in values.items() if isinstance(value, float)}
