"""The parts of a run that follow from its recipe: its plan, its strategies, its search."""

from __future__ import annotations

from collections.abc import Iterator

from cerebro_elastic.core.model.configs import HParams, Parent
from cerebro_elastic.core.model.interfaces import Search, SearchContext
from cerebro_elastic.core.model.run import Plan, Progress, Spec
from cerebro_elastic.core.model.units import CheckpointRef, Strategy
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.recipes import Data, Recipe
from cerebro_elastic.recipes.parallelism import AUTO, installed, nodes_of, ranks_of, section_type
from cerebro_elastic.recipes.search import SampledSearch
from cerebro_elastic.registry import load
from cerebro_elastic.search.members import MemberSearch
from cerebro_elastic.system.version import __version__

BEGUN_PER_NODE = 6
"""The number of configs of a grid or a random search, per node, that have begun and not ended
(``benchmarks/concurrency.py``)."""


def strategies(recipe: Recipe) -> tuple[Strategy, ...]:
    """The plan's strategies, in the recipe's order."""
    if recipe.task.ARRAYS == "numpy":
        return (Strategy(),)
    gang, ranks = recipe.gang, recipe.node.ranks
    if recipe.parallelism == AUTO:
        return (Strategy(), *_all(gang, ranks))
    return tuple(
        Strategy(
            section.use,
            ranks_of(section, gang, ranks),
            nodes_of(section, gang, ranks),
            section.options_in(recipe.root),
        )
        for section in recipe.parallelism
    )


def _all(gang: int, ranks: int) -> Iterator[Strategy]:
    """Each installed parallelism on all ranks of one node, of two, ... of a gang."""
    for nodes in range(1, gang + 1):
        if nodes * ranks > 1:
            for name in installed():
                if name != "single":
                    yield Strategy(name, nodes * ranks, nodes, section_type(name).AUTO_OPTIONS)


def batches_in(recipe: Recipe, manifest: Manifest, hparams: HParams) -> tuple[int, bool]:
    """Rows of a config's batches, and whether a training partition's short last batch is left out."""
    settled, data = manifest.loader, recipe.data
    size = hparams.get("batch_size", settled.get("batch_size", data.batch_size))
    return int(size), bool(settled.get("drop_last", data.drop_last))


def plan_of(recipe: Recipe, run: str, partitions: int, validations: int) -> Plan:
    """The plan of a run of ``recipe``, with its warm start written out, on data with these numbers of
    partitions to train on and to validate on."""
    return Plan(
        run=run,
        partitions=partitions,
        epochs=recipe.epochs,
        evaluations=validations if recipe.validates_apart else 0,
        folds=recipe.folds,
        repeats=recipe.repeats.min if recipe.repeats is not None else 0,
        min_nodes=recipe.nodes.min,
        max_nodes=recipe.nodes.max,
        tries=recipe.limits.tries,
        seed=recipe.seed,
        strategies=strategies(recipe),
        start=start_of(recipe),
        replicas=recipe.replicas,
        on_demand=recipe.fetch == "on-demand",
        progress=_progress(recipe),
        prefers_made=_makes_batches(recipe.data),
        begun_per_node=_begun_per_node(recipe),
        finishes_first=_finishes_first(recipe),
    )


def validations(recipe: Recipe, manifest: Manifest) -> int:
    """The number of partitions on which each config is validated."""
    return len(manifest.train) // recipe.folds if recipe.folds else len(manifest.valid)


def _begun_per_node(recipe: Recipe) -> int:
    """0 for a search that limits its live configs itself or compares them, if all configs share made batches,
    if all should advance together, or if configs have members."""
    if (
        recipe.has_members
        or recipe.search.method not in ("grid", "random")
        or recipe.search.concurrency is not None
        or _finishes_first(recipe)
    ):
        return 0
    return 0 if _makes_batches(recipe.data) or recipe.progress == "even" else BEGUN_PER_NODE


def _finishes_first(recipe: Recipe) -> bool:
    """Whether a budget goes to configs that will finish, unless the recipe sets the number of live ones."""
    search = recipe.search
    trains_to_the_end = search.method in ("grid", "random") or isinstance(search, SampledSearch)
    chosen = recipe.has_members or search.concurrency is not None or recipe.progress == "even"
    return search.budget.ends and trains_to_the_end and not chosen


def _makes_batches(data: Data) -> bool:
    """Whether a user's code makes the batches, so that sharing them pays."""
    code = (data.dataset, data.datamodule, data.decode, data.transform, data.collate, data.embed)
    return data.workers > 0 or any(code)


def _progress(recipe: Recipe) -> Progress:
    """The recipe's, or a default: only ``auto`` takes the cost of evenness into account, and with rungs good
    configs should run ahead."""
    if recipe.progress is not None:
        return Progress(recipe.progress)
    affordable = recipe.scheduler == "auto" and not recipe.search.has_rungs
    return Progress.AFFORDABLE if affordable else Progress.FREE


def start_of(recipe: Recipe) -> Parent | None:
    """The checkpoint from which the search's configs begin; ``None``: from scratch."""
    start = recipe.search.start
    if start is None or start.checkpoint is None or start.digest is None:
        return None
    ref = CheckpointRef(start.checkpoint, start.digest, start.bytes or 0)
    return Parent("", ref, start.epoch or 0, "", hparams=start.hparams or {})


def spec_without_run(recipe: Recipe, plan: Plan, data: str, data_digest: str = "", given: str = "") -> Spec:
    """A spec for units outside any run, or for simulated ones; ``given`` is the digest of the recipe before
    its warm start was written out."""
    return Spec(plan, recipe.resolved(), given, data, data_digest, str(recipe.root), {}, "", __version__)


def first_hparams(recipe: Recipe) -> list[HParams]:
    """The hyper-parameters of the first configs of the recipe's search."""
    data, nodes = recipe.data, recipe.nodes.min
    first = SearchContext(partitions=data.partitions, epochs=recipe.epochs, nodes=nodes)
    return [proposal.hparams for proposal in make_search(recipe).propose(first)]


def make_search(recipe: Recipe) -> Search:
    """The recipe's search procedure."""
    search: Search = load("cerebro.search", recipe.search.method)(recipe)
    return MemberSearch(search, recipe) if recipe.has_members else search
