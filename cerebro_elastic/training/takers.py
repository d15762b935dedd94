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
    known = {"batch_size"}
    for function, context in takers:
        names = arguments.accepted(function)
        if names is None:
            return None
        known |= names - context
    return known


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
    known = known_names(takers.values())
    for name in given:
        if known is not None and name not in known:
            near = did_you_mean(name, known)
            raise TaskError(f"none of {', '.join(takers)} takes a hyper-parameter {name!r}; {near}")
    for role, (function, context) in takers.items():
        if missing := sorted(arguments.required(function) - context - given.keys()):
            raise TaskError(
                f"{role} needs {', '.join(missing)}: search over it, or give it in task.args or a default"
            )
