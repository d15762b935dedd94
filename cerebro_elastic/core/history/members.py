"""What is a config that has members? One view of them: a mean, its deviation, one status.

A person's config with folds, or with several seeds, is trained as several configs of the record, its
*members*: each has its own state, visits and checkpoints, and all have the same hyper-parameters. All code
that compares or shows configs combines the members by these functions.

In an epoch, those members count that have reached its end so far; a member that its task ended earlier counts
with its last logged values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from cerebro_elastic.core.history.lineage import in_order
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.system.words import counted


def member_id(config: str, fold: int | None, repeat: int, plan: Plan) -> str:
    """The id of a member: ``c0003.f1``, ``c0003.r2``, or ``c0003.f1.r2``."""
    parts = [config] if fold is None else [config, f"f{fold}"]
    return ".".join([*parts, f"r{repeat}"] if plan.repeats else parts)


def first_members(plan: Plan) -> list[tuple[int | None, int]]:
    """Folds and repeats of each config's first members; for a config without members, its own."""
    return members_of_repeats(plan, range(plan.repeats or 1))


def members_of_repeats(plan: Plan, repeats: Iterable[int]) -> list[tuple[int | None, int]]:
    """The members of these repeats: all folds of the first, then those of the next."""
    folds: Sequence[int | None] = range(plan.folds) if plan.folds else (None,)
    return [(fold, repeat) for repeat, fold in product(repeats, folds)]


def member(config: str, hparams: HParams, fold: int | None, repeat: int, plan: Plan) -> Config:
    """A new member of a config, or the config itself in a run without members; untrained."""
    name = member_id(config, fold, repeat, plan)
    return Config(name, hparams, member_of=config if plan.has_members else "", fold=fold, repeat=repeat)


def by_config(configs: Iterable[Config]) -> dict[str, list[Config]]:
    """The members of each config that a person sees, in order; a config without members is its own."""
    groups: dict[str, list[Config]] = {}
    for config in in_order(configs):
        groups.setdefault(config.seen_as, []).append(config)
    return groups


def named(configs: Mapping[str, Config], name: str) -> list[Config]:
    """The config of this id, or its members; empty if none exists."""
    if name in configs:
        return [configs[name]]
    return in_order(config for config in configs.values() if config.member_of == name)


def status_of(statuses: Iterable[Status]) -> Status:
    """Live as long as a member is; then failed if one failed, stopped if one was stopped, else finished."""
    known = set(statuses)
    return next(s for s in (Status.LIVE, Status.FAILED, Status.STOPPED, Status.FINISHED) if s in known)


def statuses(configs: Iterable[Config]) -> Counter[str]:
    """The number of configs with each status, as a person sees them."""
    return Counter(status_of(c.status for c in members).value for members in by_config(configs).values())


def came_to(curves: Sequence[Sequence[Point]], ended: Sequence[bool]) -> dict[int, list[Point]]:
    """By epoch: the logged values of each member at its end, in the order of the members.

    Args:
        curves: The curve of each member.
        ended: Whether it has ended by itself, so that its values stay for later epochs.
    """
    ends = [epoch_ends(curve) for curve in curves]
    epochs = sorted({point.epochs for points in ends for point in points})
    at: dict[int, list[Point]] = {epoch: [] for epoch in epochs}
    for points, over in zip(ends, ended, strict=True):
        own = {point.epochs: point for point in points}
        for epoch in epochs:
            if epoch in own:
                at[epoch].append(own[epoch])
            elif over and points and epoch > points[-1].epochs:
                at[epoch].append(points[-1])
    return at


def mean_curve(curves: Sequence[Sequence[Point]], ended: Sequence[bool]) -> tuple[Point, ...]:
    """The means over the members that have reached each epoch. Arguments are those of ``came_to``."""
    return tuple(
        Point(max(p.units for p in points), epoch, dict(_means(points)), ends=True)
        for epoch, points in came_to(curves, ended).items()
    )


def _means(points: Sequence[Point]) -> Iterator[tuple[str, float]]:
    for name in dict.fromkeys(name for point in points for name in point.metrics):
        values = [point.metrics[name] for point in points if name in point.metrics]
        yield name, math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation (with n - 1) of members' values; ``None`` for fewer than two finite ones."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def half_interval(values: Sequence[float], folds: int) -> float | None:
    """Half the 95 % interval of the mean of members' values, by Student's t; ``None`` as for ``deviation``.

    Folds share most of their training rows, so their values are not independent draws. The variance is
    corrected for that (Nadeau and Bengio, Machine Learning 2003).
    """
    std = deviation(values)
    if std is None:
        return None
    shared = 1 / (folds - 1) if folds else 0.0
    return _t95(len(values) - 1) * std * math.sqrt(1 / len(values) + shared)


_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


def _t95(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: a table, and beyond it the first terms of its expansion in
    1 / ``freedom``."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def why_no_members(new: Sequence[Config], others: Iterable[Config], plan: Plan) -> str | None:
    """Why configs cannot be added together to a run with this ``plan`` and these ``others``; ``None`` if they
    can."""
    first = new[0]
    if not plan.has_members:
        alone = (first.member_of, first.fold, first.repeat) == ("", None, 0) and len(new) == 1
        return None if alone else "configs have no members"
    expected = members_of_repeats(plan, dict.fromkeys(each.repeat for each in new))
    if [(each.fold, each.repeat) for each in new] != expected:
        return f"of each seed all {counted(plan.folds or 1, 'fold')} begin together"
    for each in new:
        if each.id != (name := member_id(first.member_of, each.fold, each.repeat, plan)):
            return f"the id of {each.id} would be {name}"
    known = [*new, *(other for other in others if other.member_of == first.member_of)]
    if any(other.hparams != first.hparams or other.seen_as != first.member_of for other in known):
        return "members of a config have the same hyper-parameters"
    return None
