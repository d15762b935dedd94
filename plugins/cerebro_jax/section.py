"""The recipe's ``task`` section for JAX; imports no JAX."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from cerebro_elastic.extending.recipes import Arguments, Reference, TaskSection


class JaxSection(TaskSection):
    """Plain JAX functions, or Flax NNX."""

    NEEDS: ClassVar[tuple[str, ...]] = ("jax",)
    MAY_USE: ClassVar[tuple[str, ...]] = ("jaxlib", "flax", "optax")
    ARRAYS: ClassVar[Literal["torch", "numpy"]] = "numpy"

    kind: Literal["jax"] = "jax"
    """Pure functions on a tree of arrays, or objects of Flax NNX; see
    [Other frameworks](../how-to/frameworks.md#jax)."""
    init_fn: Reference
    """Makes the trained state: any tree of arrays, such as `(params, opt_state)`, or objects of Flax NNX."""
    step_fn: Reference
    """Trains on a batch: returns `(state, metrics)`. With Flax NNX it changes the objects, and returns
    metrics."""
    eval_fn: Reference | None = None
    """Returns metrics of a batch. They are reported as `val_<name>`."""
    args: Arguments = Field(default={})
    """Arguments of the functions that are not searched."""
