"""The plan of a run's extension: its configs, its new spec, and the search's objections. Pure, apart from
reading the run's history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.lineage import in_order
from cerebro_elastic.core.history.members import by_config, named, status_of
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import Search
from cerebro_elastic.core.model.run import Extension, Spec, changed
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import RunError, brief, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.reporting.budget import EXTENDED, ended_early
from cerebro_elastic.runs.arguments import Extend
from cerebro_elastic.runs.attach import trainings_named
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.search.budgets import USED_UP
from cerebro_elastic.search.halving import why_not_longer, why_not_more
from cerebro_elastic.search.members import MemberSearch
from cerebro_elastic.system.words import counted, for_reader, option


def extended(result: RunResult, wish: Extend) -> Spec:
    """The spec of the run ``result`` after the extension, whose last ``extensions`` has the changes. Raises
    ``RunError``, with the reason, if the run cannot be extended so."""
    spec, state = result.spec, result.view.state
    _check_wish(wish)
    recipe = _longer_recipe(spec, wish)
    names = _chosen(result, wish, recipe.epochs)
    before = dict(spec.recipe)
    if recipe.resolved() == before and not names:
        raise RunError(f"run {result.run!r} is as long already: nothing would change")
    _check_search(spec, recipe, state)
    stopped = [name for name in wish.configs if state.configs[name].status is Status.STOPPED]
    extension = replace(
        _next_extension(spec, state, names, wish.by),
        epochs=recipe.epochs,
        by_hand=tuple(stopped),
        recipe_before=changed(before, recipe.resolved()),
    )
    return replace(
        spec,
        plan=replace(spec.plan, epochs=recipe.epochs),
        recipe=recipe.resolved(),
        recipe_digest=recipe.digest,
        extensions=(*spec.extensions, extension),
    )


def retried(spec: Spec, state: State, names: Sequence[str], by: str) -> Spec:
    """The spec of an ended run after an extension that only lets failed configs continue."""
    return replace(spec, extensions=(*spec.extensions, _next_extension(spec, state, names, by)))


def failed_configs(run: str, state: State, names: Sequence[str] = ()) -> list[str]:
    """The failed configs of a run, or the named ones of them. Raises ``RunError`` if no config has failed, or
    if a named one has not."""
    failed = [c.id for c in in_order(state.configs.values()) if c.status is Status.FAILED]
    if not failed:
        raise RunError(f"no config of run {run!r} has failed: there is none to try again")
    chosen: list[str] = []
    for name in names:
        members = named(state.configs, name)
        if not members:
            raise RunError(f"run {run!r} has no config {name!r}; {did_you_mean(name, failed)}")
        chosen += [config.id for config in members if config.id in failed]
        if not any(config.id in failed for config in members):
            status = status_of(config.status for config in members).value
            raise RunError(
                f"config {name} is {status}: only a failed one is tried again; failed: {', '.join(failed)}"
            )
    return list(dict.fromkeys(chosen)) or failed


def _next_extension(spec: Spec, state: State, names: Collection[str], by: str) -> Extension:
    """The next extension: it lets these configs continue, and changes nothing else."""
    return Extension(
        number=len(spec.extensions) + 1,
        epochs=spec.plan.epochs,
        configs={name: state.configs[name].epoch for name in names},
        others=tuple(each.id for each in in_order(state.configs.values()) if each.id not in names),
        epochs_before=spec.plan.epochs,
        digest_before=spec.recipe_digest,
        by=by,
    )


def _check_wish(wish: Extend) -> None:
    if wish.epochs is None and wish.num is None and not wish.budget:
        raise RunError(
            f"say by how much: {option('epochs')}, the epochs of each config in all; {option('num')}, the "
            f"configs in all; or {option('budget')}, bounds by their keys"
        )
    if wish.configs and wish.top is not None:
        raise RunError(
            f"{option('config', 'configs')} names configs, and {option('top')} chooses them: give one of them"
        )
    if wish.top is not None and wish.top < 1:
        raise RunError(f"{option('top')} is {wish.top}: it is a number of configs, 1 or more")
    if (wish.configs or wish.top is not None) and wish.epochs is None and not wish.budget:
        raise RunError(
            f"{option('config', 'configs')} and {option('top')} choose configs that get more epochs: give "
            f"{option('epochs')} as well"
        )
    unknown = sorted(wish.budget.keys() - set(EXTENDED))
    if unknown:
        raise RunError(f"{option('budget')} {unknown[0]}=...: {did_you_mean(unknown[0], EXTENDED)}")


def _longer_recipe(spec: Spec, wish: Extend) -> Recipe:
    """The recipe after the extension. Raises ``RunError`` for values below the former ones."""
    recipe = spec.load_recipe()
    values: dict[str, Any] = {}
    search: dict[str, Any] = {}
    if wish.epochs is not None:
        if wish.epochs < recipe.epochs:
            raise RunError(
                f"{option('epochs')} is {wish.epochs}, and configs have {counted(recipe.epochs, 'epoch')} "
                f"already: it is their number in all, so give more than {recipe.epochs}"
            )
        values["epochs"] = wish.epochs
        if recipe.search.max_epochs is not None:
            search["max_epochs"] = wish.epochs
    if wish.num is not None:
        search["num"] = _more_configs(recipe, wish.num)
    if wish.budget:
        known = recipe.search.budget.model_dump(exclude_none=True)
        for key in wish.budget:
            if key not in known:
                had = ", ".join(sorted(known)) or "none at all"
                raise RunError(f"{option('budget')} {key}=...: the run had no such bound (it had {had})")
        search["budget"] = {**known, **{k: type(known[k])(v) for k, v in wish.budget.items()}}
    longer = spec.load_recipe(**values, **({"search": search} if search else {}))
    for key in wish.budget:
        before, after = (_bound(of.search.budget, key) for of in (recipe, longer))
        if after <= before:
            raise RunError(
                f"{option('budget')} {key}={search['budget'][key]}: the run had {known[key]}, and the bound "
                "is that of all together: give more"
            )
    return longer


def _bound(budget: Budget, key: str) -> float:
    moment = budget.until if key == "deadline" else None
    return float(getattr(budget, key)) if moment is None else moment


def _more_configs(recipe: Recipe, num: int) -> int:
    if refusal := why_not_more(_judge(recipe), recipe):
        raise RunError(f"{option('num')} {num}: {refusal}")
    before = recipe.search.num
    if before is None:
        raise RunError(
            f"{option('num')} {num}: the search had no number of configs; its budget ended it: give "
            f"{option('budget')}"
        )
    if num <= before:
        raise RunError(
            f"{option('num')} is {num}, and the run has {counted(before, 'config')} already: it is their "
            f"number in all, so give more than {before}"
        )
    return num


def _chosen(result: RunResult, wish: Extend, epochs: int) -> list[str]:
    """The configs that continue."""
    state, visits = result.view.state, result.view.visits
    if wish.configs:
        return [each for name in dict.fromkeys(wish.configs) for each in _named(result, name, epochs)]
    groups = by_config(state.configs.values())
    may = [
        name
        for name, members in groups.items()
        if all(c.epoch < epochs and _may_go_on(c, visits.get(c.id, ()), wish) for c in members)
    ]
    if wish.top is not None:
        best = [row.config for row in result.leaderboard if row.config in may and row.best is not None]
        may = best[: wish.top]
    if wish.epochs is not None and not may and epochs > result.spec.plan.epochs and wish.num is None:
        early = ended_early(state, result.recipe.search.budget, result.folder.argument)
        raise RunError(
            f"no config of run {result.run!r} has come to its last epoch by itself: name those that are "
            f"to continue by {option('config', 'configs')}{f'; the budget: {early}' if early else ''}"
        )
    return [config.id for name in may for config in groups[name]]


def _may_go_on(config: Config, visits: Sequence[Visit], wish: Extend) -> bool:
    """Whether the config continues even if not named: it has used up its epochs, or the budget has stopped
    it."""
    if config.status is Status.FINISHED:
        trained = [visit for visit in visits if visit.unit.phase is Phase.TRAIN]
        return wish.epochs is not None and not (trained and trained[-1].done)
    out_of_budget = config.status is Status.STOPPED and config.reason.startswith(USED_UP)
    return bool(wish.budget) and out_of_budget and not config.by_hand


def _named(result: RunResult, name: str, epochs: int) -> list[str]:
    """The config of this id, or its trainings, if they can continue."""
    members = trainings_named(result.run, result.view.state.configs, name)
    for config in members:
        if config.status is Status.FAILED:
            again = for_reader(f"cerebro retry {result.run} {name}", f"Run.retry([{name!r}])")
            why = brief(config.reason.partition("\n")[0], 200)
            raise RunError(
                f"config {name} has failed ({why}): have it tried again "
                f"first, once that is corrected: {again}; or name others"
            )
        if config.epoch >= epochs:
            raise RunError(
                f"config {name} has {counted(config.epoch, 'epoch')} behind it, and is to have {epochs} in "
                f"all: give more {option('epochs')}, or name others"
            )
    return [config.id for config in members]


def _judge(recipe: Recipe) -> Search:
    """The search that decides on configs, without its wrapper for members."""
    search = make_search(recipe)
    return search.search if isinstance(search, MemberSearch) else search


def _check_search(spec: Spec, recipe: Recipe, state: State) -> None:
    search = _judge(recipe)
    context = observe(state, spec.plan)
    if recipe.epochs > spec.plan.epochs and (
        refusal := why_not_longer(search, recipe, context, recipe.epochs)
    ):
        raise RunError(
            f"run {spec.plan.run!r} cannot be extended to {counted(recipe.epochs, 'epoch')}: {refusal}. "
            f"Start a run of that length: cerebro run RECIPE --epochs {recipe.epochs} --run-id NAME"
        )
