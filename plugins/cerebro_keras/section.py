"""The recipe's ``task`` section for Keras; imports no Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cerebro_elastic.extending.recipes import Arguments, Callback, Reference, TaskSection


class KerasSection(TaskSection):
    """A compiled Keras model."""

    NEEDS: ClassVar[tuple[str, ...]] = ("keras",)
    MAY_USE: ClassVar[tuple[str, ...]] = ("jax", "jaxlib")
    ARRAYS: ClassVar[Literal["torch", "numpy"]] = "numpy"

    kind: Literal["keras"] = "keras"
    """A compiled Keras 3 model; see [Other frameworks](../how-to/frameworks.md#keras)."""
    model_fn: Reference
    """Makes the compiled model. It gets the hyper-parameters by name, and `epochs` and `steps` if it takes
    them."""
    backend: Literal["jax", "torch"]
    """Keras' backend."""
    callbacks: Annotated[tuple[Callback, ...], Field(strict=False)] = ()
    """Keras' callbacks by name, or yours as `module:name`; with arguments
    `{class: ReduceLROnPlateau, args: {factor: 0.5}}`."""
    args: Arguments = Field(default={})
    """Arguments of `model_fn` that are not searched."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Keras reads its backend when it is imported."""
        return {"KERAS_BACKEND": self.backend}
