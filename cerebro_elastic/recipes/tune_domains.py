"""Search spaces as Python has them, in the values of a recipe: arrays, ranges, and domains of Ray Tune
(``tune.loguniform``, ``tune.grid_search``, ...). Neither numpy nor Ray is imported: a caller that has such an
object has imported it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MODULE = "ray.tune.search.sample"
_GRID = "grid_search"
_MOST_STEPS = 10_000
"""The longest list of values by which steps between two bounds are written."""


def plain(value: Any) -> Any:
    """The value in the types of JSON: of arrays and scalars of numpy or torch their numbers, of ranges and
    tuples a list.

    Raises ``ValueError`` for a domain that a recipe cannot hold.
    """
    if hasattr(value, "tolist"):  # first: numpy's float64 is a float
        return plain(value.tolist())
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__name__", repr(value))
        raise ValueError(
            f"{name} is code, and a recipe has values: give its name, {name!r}, and have the constructor "
            "look it up, such as getattr(torch.nn, name)"
        )
    raise ValueError(
        f"{value!r} is a {type(value).__name__}: give numbers, texts, booleans, or lists and mappings of them"
    )


def from_tune(value: object) -> object:
    """The domain of a recipe that has the same values as Ray Tune's ``value``; anything else as it is.

    Raises ``ValueError`` for a domain that recipes do not have.
    """
    if isinstance(value, Mapping) and list(value) == [_GRID]:
        return {"choice": value[_GRID]}
    if type(value).__module__ != _MODULE:
        return value
    domain: Any = value
    sampler = domain.get_sampler()
    step = getattr(sampler, "q", None)
    spread = type(sampler.get_sampler() if step is not None else sampler).__name__.lstrip("_")
    match type(domain).__name__, spread:
        case "Categorical", _:
            return {"choice": list(domain.categories)}
        case (("Float" | "Integer"), "Uniform") if step is not None:
            return {"choice": _steps(domain, step)}
        case "Float", "Uniform":
            return {"uniform": [domain.lower, domain.upper]}
        case "Float", "LogUniform" if step is None:
            return {"loguniform": [domain.lower, domain.upper]}
        case "Integer", "Uniform":
            return {"int": [domain.lower, domain.upper - 1]}  # Tune's upper bound is exclusive
        case "Function", _:
            raise ValueError(
                "tune.sample_from has no counterpart: derive the value in your constructor, or give "
                "`space_fn`, a function that draws from an optuna trial"
            )
        case kind, _:
            raise ValueError(
                f"Ray Tune's {kind} domain {'in steps ' if step is not None else ''}with the distribution "
                f"{spread} has no counterpart: use tune.choice of a list of values, or uniform, loguniform, "
                "quniform, randint, qrandint"
            )


def _steps(domain: Any, step: float) -> list[Any]:
    """The multiples of ``step`` within the bounds, both included; of a step of 1 between whole numbers Tune
    never draws the upper one."""
    first, last = math.ceil(round(domain.lower / step, 9)), math.floor(round(domain.upper / step, 9))
    if type(domain).__name__ == "Integer" and step == 1:
        last -= 1
    if last - first >= _MOST_STEPS:
        raise ValueError(
            f"steps of {step:g} from {domain.lower:g} to {domain.upper:g} are {last - first + 1} values, at "
            f"most {_MOST_STEPS} can be listed: choose a larger step, or leave it out"
        )
    return [domain.cast(float(f"{index * step:.12g}")) for index in range(first, last + 1)]
