"""The recipe's ``task`` section for a LightningModule; imports neither Lightning nor torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cerebro_elastic.extending.recipes import Arguments, Callback, Reference, TaskSection


class LightningSection(TaskSection):
    """A ``LightningModule``."""

    NEEDS: ClassVar[tuple[str, ...]] = ("lightning",)

    kind: Literal["lightning"] = "lightning"
    module: Reference
    """The class, ``module:name``."""
    args: Arguments = Field(default={})
    """Arguments of its constructor that are not searched."""
    trainer: Arguments = Field(default={})
    """Arguments for ``L.Trainer``."""
    callbacks: Annotated[tuple[Callback, ...], Field(strict=False)] = ()
    """Names of Lightning's callbacks or references ``module:name``, each alone or as
    ``{"class": name, "args": {...}}``. A reference names a class, or a function that returns a callback or a
    list of them."""
