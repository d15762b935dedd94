"""What was a run made from before it was extended?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.model.run import Spec


def specs_of(spec: Spec) -> list[Spec]:
    """All specs that a run has had: the one with which it was opened, and one for each extension."""
    return [*(specs_of(_before(spec)) if spec.extensions else []), spec]


def changed(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The keys, with dots, in which two resolved recipes differ, and their values ``before``; ``None`` for
    one that was absent."""
    values: dict[str, Any] = {}
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            values |= changed(old, new, f"{prefix}{key}.")
        elif old != new:
            values[f"{prefix}{key}"] = old
    return values


def _before(spec: Spec) -> Spec:
    *earlier, extension = spec.extensions
    recipe = spec.recipe
    for key, value in extension.recipe_before.items():
        recipe = _with(recipe, key.split("."), value)
    return replace(
        spec,
        plan=replace(spec.plan, epochs=extension.epochs_before),
        recipe=recipe,
        recipe_digest=extension.digest_before,
        extensions=tuple(earlier),
    )


def _with(values: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy of nested ``values`` with another one at ``path``, or without it."""
    first, *rest = path
    if rest:
        return {**values, first: _with(values.get(first, {}), rest, value)}
    if value is None:
        return {key: known for key, known in values.items() if key != first}
    return {**values, first: value}
