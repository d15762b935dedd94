"""What rows weigh in the loss: by their class, by a column of the dataset, or both."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe

_SHOWN = 5
"""The number of classes that an error names."""


@dataclass(frozen=True, slots=True)
class LossWeights:
    """What rows weigh in the loss."""

    classes: tuple[float, ...] = ()
    """The weight of each class; empty: all weigh alike."""
    samples: bool = False
    """Whether the batches are ``(x, y, w)``, where ``w`` weighs each row."""

    def __bool__(self) -> bool:
        return bool(self.classes) or self.samples


EVEN = LossWeights()
"""All rows weigh alike."""


def loss_weights(recipe: Recipe, manifest: Manifest) -> LossWeights:
    """What the recipe and the dataset say about weights. Raises ``RecipeError`` if they do not fit."""
    named = getattr(recipe.task, "class_weights", None)
    if named is None:
        return LossWeights((), bool(manifest.sample_weight))
    ((column, counts),) = manifest.class_counts.items() or [("", ())]
    if named != "balanced":
        if counts and len(named) != len(counts):
            raise RecipeError(
                f"task.class_weights has {len(named)} weights, and column {column!r} of the training data "
                f"{len(counts)} classes: give one weight for each"
            )
        return LossWeights(tuple(named), bool(manifest.sample_weight))
    if not counts:
        raise RecipeError(
            "task.class_weights is 'balanced', and the dataset does not say how many rows each class has: "
            "prepare it with `--count-classes COLUMN`, or give a list of weights"
        )
    if empty := [number for number, rows in enumerate(counts) if not rows]:
        names = manifest.vocabulary.get(column, range(len(counts)))
        shown = ", ".join(repr(names[number]) for number in empty[:_SHOWN])
        raise RecipeError(
            f"task.class_weights is 'balanced', and the training data have no row of class {shown} in column "
            f"{column!r}: add some, hold out rows by `stratify`, or give a list of weights"
        )
    total = sum(counts)
    return LossWeights(tuple(total / (len(counts) * rows) for rows in counts), bool(manifest.sample_weight))
