"""The user's functions, compiled once for each shape of a batch and for what is static in a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import select_arguments
from cerebro_jax.trees import Structure

_NEEDS_A_NUMBER = (TypeError, ValueError, LookupError)
"""Errors of a function that needs a Python number and gets a traced argument of a compiled function."""


class Program:
    """Compiled functions that train all configs that differ in fractions alone.

    Fractions (floats) among the ``values`` that functions get by name are arguments of the compiled
    functions, so that configs that differ in a learning rate share them. All others are static. A function
    that fails with a traced fraction, as it needs a Python number, is compiled for each of the fraction's
    values.

    Args:
        step: The user's ``step_fn``.
        evaluate: The user's ``eval_fn``.
        values: The hyper-parameters of one of the configs.
        structure: The common structure of the trees: arrays alone, or the objects of one config.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        evaluate: Callable[..., Any] | None,
        values: Mapping[str, Any],
        structure: Structure,
    ) -> None:
        static = {name: value for name, value in values.items() if not isinstance(value, float)}
        self.step = _Compiled(partial(_stepped, step, structure, static), donate_argnums=0)
        """``(tree, batch, key, fractions) -> (tree, metrics)``."""
        self.evaluate = _Compiled(partial(_evaluated, evaluate, structure, static))
        """``(tree, batch, None, fractions) -> metrics``."""


class _Compiled:
    """A function of ``(tree, batch, key, fractions)``."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._by_argument = jax.jit(function, **options)
        self._by_value = jax.jit(
            lambda tree, batch, key, numbers: function(tree, batch, key, _fractions(numbers)),
            static_argnums=3,
            **options,
        )
        self._need_numbers: set[Any] = set()

    def __call__(self, tree: Any, batch: Any, key: Any, fractions: Mapping[str, float]) -> Any:
        return self._tried(lambda call, *arguments: call(*arguments), tree, batch, key, fractions)

    def text(self, tree: Any, batch: Any, key: Any, fractions: Mapping[str, float]) -> str:
        """The compiled function as text."""
        lower = self._tried(lambda call, *arguments: call.lower(*arguments), tree, batch, key, fractions)
        return str(lower.as_text())

    def _tried(self, use: Callable[..., Any], tree: Any, batch: Any, key: Any, fractions: Any) -> Any:
        """Whether a function needs numbers depends on the shapes alone, not on earlier units."""
        shapes = self._need_numbers and _shapes(batch)
        if not shapes or shapes not in self._need_numbers:
            try:
                return use(self._by_argument, tree, batch, key, fractions)
            except _NEEDS_A_NUMBER:
                if not fractions:
                    raise
        returned = use(self._by_value, tree, batch, key, tuple(_numbers(fractions)))
        self._need_numbers.add(_shapes(batch))
        return returned


def _stepped(
    step: Callable[..., Any],
    structure: Structure,
    static: Mapping[str, Any],
    tree: Any,
    batch: Any,
    key: Any,
    fractions: Mapping[str, Any],
) -> Any:
    merged = structure.merged(tree)
    named = select_arguments(step, {**static, **fractions, "key": key})
    returned = step(*structure.arguments(merged), batch, **named)
    if structure.has_objects and isinstance(returned, Mapping):
        return structure.split(merged), returned
    pair = isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)
    if pair and not structure.has_objects:
        return returned
    expected = "metrics by name" if structure.has_objects else "(state, metrics by name)"
    raise TaskError(f"{step.__name__} returned a {type(returned).__name__}: expected {expected}")


def _evaluated(
    evaluate: Callable[..., Any] | None,
    structure: Structure,
    static: Mapping[str, Any],
    tree: Any,
    batch: Any,
    _key: None,
    fractions: Mapping[str, Any],
) -> Any:
    assert evaluate is not None
    named = select_arguments(evaluate, {**static, **fractions})
    return evaluate(*structure.arguments(structure.merged(tree)), batch, **named)


def static_of(values: Mapping[str, Any]) -> Any:
    """The values that all configs of a program have in common."""
    return tuple(
        sorted((name, repr(value)) for name, value in values.items() if not isinstance(value, float))
    )


def fractions_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The values that are not static."""
    return {name: value for name, value in values.items() if isinstance(value, float)}


def _numbers(fractions: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Numbers as texts, so that JAX distinguishes all of them, 0.0 and -0.0 too."""
    return ((name, value.hex()) for name, value in sorted(fractions.items()))


def _fractions(numbers: tuple[tuple[str, str], ...]) -> dict[str, float]:
    return {name: float.fromhex(text) for name, text in numbers}


def _shapes(batch: Any) -> Any:
    return tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree_util.tree_leaves(batch))
