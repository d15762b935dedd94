"""What JAX trains as a dict of arrays by path, and back. The structure is not stored: ``init_fn`` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cerebro_elastic.extending.errors import TaskError


@dataclass(frozen=True)
class Structure:
    """What ``init_fn`` returns, without values."""

    treedef: Any
    """JAX's structure of the tree."""
    leaves: Mapping[str, str | None]
    """The leaves by path: of a key of a random generator the name of the generator."""
    graphdef: Any = None
    """The structure of Flax NNX's objects; ``None`` of a plain tree."""

    def dump(self, tree: Any) -> dict[str, np.ndarray[Any, Any]]:
        """The tree's arrays. Keys of random generators become their data."""
        leaves = jax.tree_util.tree_leaves(tree)
        if len(leaves) != len(self.leaves):
            raise TaskError(
                f"step_fn returned a state of {len(leaves)} arrays, and init_fn one of {len(self.leaves)}: "
                "return what it got, with other values"
            )
        return {
            path: np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
            for path, leaf in zip(self.leaves, leaves, strict=True)
        }

    def load(self, arrays: Mapping[str, Any]) -> Any:
        """The tree of these arrays. Raises ``TaskError`` if they are of another structure."""
        if arrays.keys() != self.leaves.keys():
            raise TaskError(
                f"the state has the arrays {sorted(arrays)}, and init_fn makes {sorted(self.leaves)}: hyper-"
                "parameters that change the structure cannot be changed by a search that goes on from a state"
            )
        leaves = [_loaded(arrays[path], generator) for path, generator in self.leaves.items()]
        return jax.tree_util.tree_unflatten(self.treedef, leaves)


def structure_of(make: Callable[[], Any]) -> Structure:
    """The structure of what ``make`` returns, which is traced and not computed."""
    seen: list[Structure] = []

    def traced() -> Any:
        graphdef, tree = split(make())
        paths, treedef = jax.tree_util.tree_flatten_with_path(tree)
        seen.append(Structure(treedef, {_name(path): _generator(leaf) for path, leaf in paths}, graphdef))
        return tree

    jax.eval_shape(traced)
    return seen[0]


def split(made: Any) -> tuple[Any, Any]:
    """The structure of Flax NNX's objects, ``None`` of a plain tree, and the tree of arrays."""
    if not has_objects(made):
        return None, made
    from flax import nnx

    graphdef, state = nnx.split(made)
    return graphdef, state


def merged(structure: Structure, tree: Any) -> Any:
    """What ``init_fn`` returns, with these values."""
    if structure.graphdef is None:
        return tree
    from flax import nnx

    return nnx.merge(structure.graphdef, tree)


def has_objects(tree: Any) -> bool:
    """Whether a tree has objects of Flax NNX, which is not imported for the question."""
    return any(_is_object(leaf) for leaf in jax.tree_util.tree_leaves(tree, is_leaf=_is_object))


def _is_object(value: Any) -> bool:
    return any(kind.__module__.startswith("flax.nnx") for kind in type(value).__mro__)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _generator(leaf: Any) -> str | None:
    return str(jax.random.key_impl(leaf)) if _is_key(leaf) else None


def _loaded(array: Any, generator: str | None) -> Any:
    values = jnp.array(array)  # a copy, which may be donated
    return values if generator is None else jax.random.wrap_key_data(values, impl=generator)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "state"
