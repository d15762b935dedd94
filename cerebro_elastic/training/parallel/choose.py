"""A parallelism by name and options; what is wrong with either is said before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, get_type_hints, runtime_checkable

import torch
from pydantic import TypeAdapter, ValidationError

from cerebro_elastic import registry
from cerebro_elastic.errors import RecipeError, did_you_mean
from cerebro_elastic.system import arguments
from cerebro_elastic.training.parallel.base import Parallelism

GROUP = "cerebro.parallel"


@runtime_checkable
class Preparing(Protocol):
    """A parallelism that has something to import first, which takes seconds and memory."""

    def prepare(self, device: torch.device) -> None:
        """Import it, for units on ``device``."""


def make(name: str, options: Mapping[str, Any] | None = None) -> Parallelism:
    """The parallelism ``name`` with a recipe's options, which are the keyword arguments of its factory.

    Raises ``CerebroError`` for an unknown name, ``MissingExtra`` if a package is not installed, and
    ``RecipeError`` for options that it does not know or cannot take.
    """
    factory = registry.load(GROUP, name)
    known = arguments.accepted(factory)
    for option in options or {}:
        if known is not None and option not in known:
            raise RecipeError(f"{name} has no option {option!r}; {did_you_mean(option, known)}")
    _check_kinds(name, factory, options or {})
    parallelism: Parallelism = factory(**(options or {}))
    return parallelism


def prepare(name: str, options: Mapping[str, Any] | None, device: torch.device) -> None:
    """Have the parallelism import what its first unit would import. Raises as ``make`` does."""
    parallelism = make(name, options)
    if isinstance(parallelism, Preparing):
        parallelism.prepare(device)


def _check_kinds(name: str, factory: Any, options: Mapping[str, Any]) -> None:
    """That the options are of the kinds that the factory's annotations, if it has any, say."""
    try:
        kinds = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
        hints = get_type_hints(kinds)
    except NameError:  # of something that is there for type checkers alone
        return
    for option in options.keys() & hints.keys():
        try:
            TypeAdapter(hints[option]).validate_python(options[option], strict=True)
        except ValidationError as exc:
            rule = exc.errors()[0]["msg"].replace("Input should", "it should")
            raise RecipeError(f"{name}: {option} is {options[option]!r}: {rule}") from exc
