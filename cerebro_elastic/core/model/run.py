"""What is fixed for the whole run, until it is extended? Its plan and its spec."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cerebro_elastic.core.model.configs import Parent
from cerebro_elastic.core.model.units import Strategy

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Domain, Objective, Recipe


class Progress(StrEnum):
    """When a node that could take units of several configs takes the one with the most remaining epochs."""

    EVEN = "even"
    """Always: configs stay within an epoch of each other."""
    AFFORDABLE = "affordable"
    """If the run ends no later for it."""
    FREE = "free"
    """Never for this reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of the recipe that decisions depend on. Only an extension changes it: its ``epochs``."""

    run: str
    partitions: int
    """p: the number of training partitions."""
    epochs: int
    evaluations: int = 0
    """The number of validation partitions of a config that are evaluated by separate units; 0: validation
    belongs to the epoch's last unit."""
    folds: int = 0
    """The number of folds into which the training partitions are divided, in their order; 0: the run has
    separate validation partitions, and each config trains on all."""
    min_nodes: int = 1
    """The run waits for this many nodes before its first unit."""
    max_nodes: int = 1
    tries: int = 3
    """How often a unit is tried before its config fails."""
    seed: int = 0
    strategies: tuple[Strategy, ...] = (Strategy(),)
    """The possible strategies, the preferred one first. If there are several, profiles find the fastest for
    each config."""
    start: Parent | None = None
    """The checkpoint from outside the run from which the search's configs begin."""
    replicas: int = 1
    """The number of nodes at which each partition is at home; all, if they are fewer."""
    on_demand: bool = False
    """A node that would be idle otherwise may fetch a partition that is at home elsewhere."""
    progress: Progress = Progress.FREE
    prefers_made: bool = False
    """Among a config's equally good units, a node prefers one whose batches its host has made for another
    config: they are costly to make. Whether they still exist is not checked, so that a run is the same with
    and without sharing."""
    repeats: int = 0
    """The number of seeds with which each config is trained at first; 0: only the run's seed."""
    begun_per_node: int = 0
    """A config begins while fewer than this many configs per node have begun and can continue; people's
    configs begin at once. 0: all begin as soon as nodes are idle."""
    finishes_first: bool = False
    """Configs that will finish within the search's budget come before the others (``Search.held``)."""

    @property
    def has_members(self) -> bool:
        """Whether each config is trained as several: on folds, or with several seeds."""
        return bool(self.folds or self.repeats)

    @property
    def trained(self) -> int:
        """The number of training partitions of each config."""
        return self.partitions - (self.partitions // self.folds if self.folds else 0)

    def trains(self, fold: int | None) -> Sequence[int]:
        """The partitions that a config with this fold trains on."""
        held_out = self.held_out(fold)
        return [j for j in range(self.partitions) if j not in held_out]

    def held_out(self, fold: int | None) -> Sequence[int]:
        """The training partitions that a config with this fold leaves out, and validates on."""
        if fold is None:
            return ()
        size = self.partitions // self.folds
        return range(fold * size, (fold + 1) * size)

    def evaluates(self, fold: int | None) -> Sequence[int]:
        """The partitions that a config with this fold evaluates by separate units: training partitions if it
        has one."""
        if not self.evaluations:
            return ()
        return range(self.evaluations) if fold is None else self.held_out(fold)

    def seed_of(self, repeat: int) -> int:
        """The seed of this repeat's configs. The first repeat has the run's seed, so that it trains the same
        as without others."""
        if not repeat:
            return self.seed
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{repeat}".encode()).digest()[:4])


@dataclass(frozen=True, slots=True)
class Extension:
    """An operator's changes that continue an ended run."""

    number: int
    """The run's first extension (1), its second, ..."""
    epochs: int
    """The number of epochs of each config from then on."""
    configs: Mapping[str, int] = field(default_factory=dict)
    """The ids of the configs that continue, and the full epochs that each has behind it."""
    by_hand: tuple[str, ...] = ()
    """The stopped ones among them, named by a person. The search leaves them alone."""
    others: tuple[str, ...] = ()
    """The ids of the configs that stay as they are."""
    epochs_before: int = 0
    """The number of epochs of each config until then."""
    recipe_before: Mapping[str, Any] = field(default_factory=dict)
    """The changed keys of the recipe, with dots, and their values until then."""
    digest_before: str = ""
    """``Spec.recipe_digest`` until then."""
    by: str = ""
    """The name of the person who requested it, if given."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The makings of a run: recipe, code, data, storage. Written when it is opened or extended."""

    plan: Plan
    recipe: Mapping[str, Any]
    """The resolved recipe; values from other runs are written out."""
    recipe_digest: str
    """The digest of the recipe as it was given."""
    data: str
    data_digest: str
    root: str
    """The folder from which users' modules are imported."""
    code: Mapping[str, str]
    """The digest of each imported file below ``root``, and of files that the task reads; of a folder of such
    files, whose name ends with a slash, the patterns of their names. Nothing else may differ when the run is
    started again."""
    storage: str
    """The URL of checkpoints and logs."""
    version: str
    extensions: tuple[Extension, ...] = ()
    differing: Mapping[str, str] = field(default_factory=dict)
    """The data that came out differently when made twice before the start, in sentences (``data/reading``,
    ``made_twice.py``): by column, whose rows are then not kept; "": batches, none of which is then shared."""
    reuse: str = ""
    """The sha256 of ``<storage>/reuse.json``, which lists the reusable results of earlier runs; "" if it was
    started without."""

    def load_recipe(self, **overrides: Any) -> Recipe:
        """The recipe, checked, with ``overrides`` of its keys."""
        from cerebro_elastic.recipes import load_recipe  # its import takes longer than that of this module

        return load_recipe(self.recipe, root=self.root, **overrides)

    @property
    def objective(self) -> Objective:
        """The recipe's objective; the rest of the recipe is not checked."""
        from cerebro_elastic.recipes import Objective

        return Objective.model_validate(self.recipe.get("objective", {}))

    @property
    def space(self) -> dict[str, Domain]:
        """The recipe's search space; the rest of the recipe is not checked."""
        from cerebro_elastic.recipes import Domain

        space = self.recipe.get("search", {}).get("space", {})
        return {name: Domain.model_validate(domain) for name, domain in space.items()}

    def epochs_of(self, config: str, epoch: int) -> int:
        """The number of epochs that the config had, or has, when it trains this ``epoch``."""
        epochs = self.extensions[0].epochs_before if self.extensions else self.plan.epochs
        for extension in self.extensions:
            if epoch < extension.configs.get(config, 0):
                return epochs
            if config not in extension.others:
                epochs = extension.epochs
        return epochs


@dataclass(frozen=True, slots=True)
class Basis:
    """The digests of a run's makings (``core/model/origin.py``)."""

    run: str
    spec: str
    """The digest of the spec without ``Spec.code``."""
    code: str
    """The digest of the users' code, which may differ when the run is started again."""


def specs_of(spec: Spec) -> list[Spec]:
    """All specs of a run: the one with which it was opened, and one for each extension."""
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
