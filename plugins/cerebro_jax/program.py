"""The tree that JAX trains, and the user's functions, compiled once for each shape of a batch and the static
values of a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import select_arguments
from cerebro_jax._jax_internals import weak

_WEAK = "weak"
_CONTAINERS = (dict, list, tuple, type(None))


class Structure:
    """The value that ``init_fn`` has ``made`` for one config, without its arrays: it converts them to a dict
    by path and back. It is not stored: ``init_fn`` makes it again. Each config has its own, which may hold
    functions and numbers that depend on hyper-parameters, such as optax' optimizers. Constants of a plain
    tree belong to it: functions, and numbers of Python beside modules of Equinox."""

    _treedef: Any  # JAX has no types

    def __init__(self, made: Any) -> None:
        self._graphdef, tree = _split(made)
        self._fixed = None if self.has_objects else _parted(made)[0]
        paths, self._treedef = jax.tree_util.tree_flatten_with_path(tree)
        self._kinds = {_name(path): _kind(leaf, _name(path)) for path, leaf in paths}

    @property
    def has_objects(self) -> bool:
        """Whether it consists of objects of Flax NNX."""
        return self._graphdef is not None

    @property
    def holds_arrays_alone(self) -> bool:
        """Whether it holds nothing but arrays, in Python's containers."""
        return not self.has_objects and self._fixed is None and _is_plain(self._treedef)

    def begin(self, made: Any) -> Any:
        """The arrays that ``init_fn`` returned, as copies, which may be donated."""
        leaves = jax.tree_util.tree_leaves(_split(made)[1])
        return jax.tree_util.tree_unflatten(self._treedef, list(map(jnp.array, leaves)))

    def merged(self, tree: Any) -> Any:
        """The structure filled with these arrays, as ``init_fn`` would return it."""
        if self._fixed is not None:
            return jax.tree_util.tree_map(
                lambda fixed, leaf: leaf if fixed is None else fixed, self._fixed, tree, is_leaf=_is_none
            )
        if not self.has_objects:
            return tree
        from flax import nnx

        return nnx.merge(self._graphdef, tree)

    def split(self, merged: Any) -> Any:
        """The inverse of ``merged``. Raises ``TaskError`` if more than arrays has changed."""
        if self._fixed is not None:
            fixed, tree = _parted(merged)
            if fixed != self._fixed:
                raise TaskError(
                    "step_fn changes a function or a number of Python in the state: only arrays hop, so make "
                    "an array of the values that training changes"
                )
            return tree
        graphdef, tree = _split(merged)
        if graphdef != self._graphdef:
            raise TaskError(
                f"step_fn changes {_changed(self._graphdef, graphdef)} of an object of Flax NNX: only arrays "
                "hop, so keep values that training changes in an nnx.Variable, and set the rest in init_fn"
            )
        return tree

    def arguments(self, made: Any) -> tuple[Any, ...]:
        """The arguments for the user's functions: objects one by one, a tree unchanged."""
        return made if self.has_objects and isinstance(made, tuple) else (made,)

    def dump(self, tree: Any) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
        """The tree's arrays by path, and properties that a NumPy array cannot hold: a weak type, or the
        random generator of a key."""
        leaves, treedef = jax.tree_util.tree_flatten(tree)
        if self._treedef != treedef:
            raise TaskError(
                f"step_fn returned a state of another structure than init_fn ({self._difference(tree)}): "
                "return the structure that it got, with other values"
            )
        named = dict(zip(self._kinds, leaves, strict=True))
        kinds = {path: kind for path, leaf in named.items() if (kind := _kind(leaf, path))}
        keys = {path for path, kind in kinds.items() if kind != _WEAK}
        return {
            path: np.asarray(jax.random.key_data(leaf) if path in keys else leaf)
            for path, leaf in named.items()
        }, kinds

    def load(self, arrays: Mapping[str, Any], kinds: Mapping[str, str]) -> Any:
        """The tree from the result of ``dump``. Raises ``TaskError`` if it has another structure."""
        if arrays.keys() != self._kinds.keys():
            differing = ", ".join(sorted(arrays.keys() ^ self._kinds.keys())[:3])
            raise TaskError(
                f"the state and the result of init_fn do not have the same arrays ({differing}): "
                "hyper-parameters that change the structure cannot be changed by a search that continues "
                "from a state"
            )
        leaves = [_loaded(arrays[path], kinds.get(path)) for path in self._kinds]
        return jax.tree_util.tree_unflatten(self._treedef, leaves)

    def _difference(self, tree: Any) -> str:
        paths = {_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]}
        differing = sorted(paths ^ self._kinds.keys())[:3]
        return ", ".join(differing) or "the other values of its nodes"


def _split(made: Any) -> tuple[Any, Any]:
    """The structure of Flax NNX's objects and their arrays; of a plain tree ``None`` and its parts that are
    not fixed. Flax is not imported for a plain tree."""
    leaves = jax.tree_util.tree_leaves(made, is_leaf=_is_object)
    if not any(map(_is_object, leaves)):
        return None, _parted(made)[1]
    from flax import nnx

    graphdef, state = nnx.split(made)
    return graphdef, state


def _parted(tree: Any) -> tuple[Any, Any]:
    """The fixed leaves of a plain tree and the others, with ``None`` elsewhere; ``None`` if none is fixed."""
    by_equinox = any(map(_is_equinox, jax.tree_util.tree_leaves(tree, is_leaf=_is_equinox)))

    def is_fixed(leaf: Any) -> bool:  # as Equinox' filters have it
        return callable(leaf) or (by_equinox and not hasattr(leaf, "dtype"))

    fixed = jax.tree_util.tree_map(lambda leaf: leaf if is_fixed(leaf) else None, tree)
    if not jax.tree_util.tree_leaves(fixed):
        return None, tree
    return fixed, jax.tree_util.tree_map(lambda leaf: None if is_fixed(leaf) else leaf, tree)


def _is_none(value: Any) -> bool:
    return value is None


def _is_equinox(value: Any) -> bool:
    return _is_of("equinox", value)


def _is_object(value: Any) -> bool:
    return _is_of("flax.nnx", value)


def _is_of(package: str, value: Any) -> bool:
    return any(f"{kind.__module__}.".startswith(f"{package}.") for kind in type(value).__mro__)


def _is_plain(treedef: Any) -> bool:
    """Whether a structure consists of Python's containers, named tuples included."""
    node = treedef.node_data()
    known = node is None or node[0] in _CONTAINERS or issubclass(node[0], tuple)
    return known and all(map(_is_plain, treedef.children()))


def _changed(before: Any, after: Any) -> str:
    """The names of the attributes that differ between two structures of Flax NNX."""
    old, new = before.attributes, after.attributes
    names = {
        str(key) for one, other in zip(old, new, strict=False) if one != other for key in (one[0], other[0])
    }
    return ", ".join(sorted(names)[:3]) or "the parts"


def _kind(leaf: Any, path: str) -> str | None:
    """The property of a leaf that a NumPy array cannot hold: its weak type, or the random generator of a
    key."""
    if isinstance(leaf, str | bytes) or not (np.isscalar(leaf) or hasattr(leaf, "dtype")):
        raise TaskError(
            f"{path} of the state is a {type(leaf).__qualname__}, and not an array: keep other values in "
            "hyper-parameters, or in a static field of a class that is registered with JAX as a node"
        )
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        generator = jax.random.key_impl(leaf)
        if not isinstance(generator, str):
            raise TaskError(
                f"{path} of the state is a key of {generator}, a generator that JAX does not name"
            )
        return generator
    is_weak = type(leaf) in (int, float, complex) or getattr(leaf, "weak_type", False)
    return _WEAK if is_weak else None


def _loaded(array: Any, kind: str | None) -> Any:
    values = jnp.array(array)  # a copy, which may be donated
    if kind is None:
        return values
    return weak(values) if kind == _WEAK else jax.random.wrap_key_data(values, impl=kind)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "state"


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
        return structure.split(returned[0]), returned[1]
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
    return {name: value for name, value in values.items() if isinstance(value, float)}


def _numbers(fractions: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Numbers as texts, so that JAX distinguishes all of them, 0.0 and -0.0 too."""
    return ((name, value.hex()) for name, value in sorted(fractions.items()))


def _fractions(numbers: tuple[tuple[str, str], ...]) -> dict[str, float]:
    return {name: float.fromhex(text) for name, text in numbers}


def _shapes(batch: Any) -> Any:
    return tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree_util.tree_leaves(batch))
