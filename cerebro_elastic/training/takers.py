"""Which hyper-parameters the user's functions take: each gets those of its parameters' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.errors import TaskError, did_you_mean
from cerebro_elastic.system import arguments

Taker: TypeAlias = tuple[Callable[..., Any], frozenset[str]]
"""A function that gets hyper-parameters, and the names of what it gets besides."""


def known_names(takers: Iterable[Taker]) -> set[str] | None:
    """The hyper-parameters that the functions take, and the loader's; ``None`` if one takes any."""
    names = _taken_names(takers)
    return None if names is None else {"batch_size", *names}


def _taken_names(takers: Iterable[Taker]) -> set[str] | None:
    taken: set[str] = set()
    for function, context in takers:
        names = arguments.accepted(function)
        if names is None:
            return None
        taken |= names - context
    return taken


def check_taken(
    takers: Mapping[str, Taker],
    args: Mapping[str, Any],
    hparams: HParams,
    reserved: frozenset[str] = frozenset(),
) -> None:
    """Raise ``TaskError`` unless some function takes each hyper-parameter, and each gets what it needs.

    Args:
        takers: The functions by role, such as ``model_fn``.
        args: The section's ``args``.
        hparams: The hyper-parameters of one config.
        reserved: Names that no hyper-parameter may have.
    """
    given = {**args, **hparams}
    if twice := sorted(args.keys() & hparams.keys()):
        raise TaskError(f"{', '.join(twice)}: both in task.args and searched; remove it from one of them")
    if ours := sorted(given.keys() & reserved):
        raise TaskError(f"{', '.join(ours)}: a name of the system's own; rename the hyper-parameter")
    taken = _taken_names(takers.values())
    for name in given:
        of_loader = name == "batch_size" and name in hparams
        if taken is not None and name not in taken and not of_loader:
            near = did_you_mean(name, {"batch_size", *taken})
            first, *others = takers
            nobody = f"none of {', '.join(takers)} takes a" if others else f"{first} takes no"
            raise TaskError(f"{nobody} hyper-parameter {name!r}; {near}")
    for role, (function, context) in takers.items():
        if missing := sorted(arguments.required(function) - context - given.keys()):
            raise TaskError(
                f"{role} needs {', '.join(missing)}: search over it, or give it in task.args or a default"
            )
