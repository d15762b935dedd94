"""What JAX trains as a dict of arrays by path, and back. The structure is not stored: ``init_fn`` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cerebro_elastic.extending.errors import TaskError


class Structure:
    """What ``make`` returns, without values: it is traced, and not computed."""

    _treedef: Any  # JAX has no types

    def __init__(self, make: Callable[[], Any]) -> None:
        jax.eval_shape(lambda: self._seen(make()))

    def _seen(self, made: Any) -> Any:
        self._graphdef, tree = _split(made)
        paths, self._treedef = jax.tree_util.tree_flatten_with_path(tree)
        self._generators = {_name(path): _generator(leaf) for path, leaf in paths}
        return tree

    @property
    def has_objects(self) -> bool:
        """Whether it consists of objects of Flax NNX."""
        return self._graphdef is not None

    def tree(self, made: Any) -> Any:
        """The tree of arrays of what ``make`` returned."""
        return _split(made)[1]

    def merged(self, tree: Any) -> Any:
        """What ``make`` returns, with these values."""
        if not self.has_objects:
            return tree
        from flax import nnx

        return nnx.merge(self._graphdef, tree)

    def arguments(self, made: Any) -> tuple[Any, ...]:
        """What functions get of it: objects one by one, a tree as it is."""
        return made if self.has_objects and isinstance(made, tuple) else (made,)

    def dump(self, tree: Any) -> dict[str, np.ndarray[Any, Any]]:
        """The tree's arrays by path. Keys of random generators become their data."""
        leaves, treedef = jax.tree_util.tree_flatten(tree)
        if self._treedef != treedef:
            raise TaskError(
                f"step_fn returned a state of another structure ({treedef}) than init_fn ({self._treedef}): "
                "return what it got, with other values"
            )
        return {
            path: np.asarray(leaf if generator is None else jax.random.key_data(leaf))
            for (path, generator), leaf in zip(self._generators.items(), leaves, strict=True)
        }

    def load(self, arrays: Mapping[str, Any]) -> Any:
        """The tree of these arrays. Raises ``TaskError`` if they are of another structure."""
        if arrays.keys() != self._generators.keys():
            raise TaskError(
                f"the state has the arrays {sorted(arrays)}, and init_fn makes "
                f"{sorted(self._generators)}: "
                "hyper-parameters that change the structure cannot be changed by a search that goes on "
                "from a state"
            )
        leaves = [_loaded(arrays[path], generator) for path, generator in self._generators.items()]
        return jax.tree_util.tree_unflatten(self._treedef, leaves)


def _split(made: Any) -> tuple[Any, Any]:
    """The structure of Flax NNX's objects and their arrays; of a plain tree ``None`` and the tree. Flax is
    not imported for a plain tree."""
    leaves = jax.tree_util.tree_leaves(made, is_leaf=_is_object)
    if not any(map(_is_object, leaves)):
        return None, made
    from flax import nnx

    graphdef, state = nnx.split(made)
    return graphdef, state


def _is_object(value: Any) -> bool:
    return any(kind.__module__.startswith("flax.nnx") for kind in type(value).__mro__)


def _generator(leaf: Any) -> str | None:
    """The name of the random generator whose key a leaf is."""
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return str(jax.random.key_impl(leaf)) if is_key else None


def _loaded(array: Any, generator: str | None) -> Any:
    values = jnp.array(array)  # a copy, which may be donated
    return values if generator is None else jax.random.wrap_key_data(values, impl=generator)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "state"
