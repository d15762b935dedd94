"""``cerebro run``: runs a recipe on this machine, or the rest of a run that was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.overrides import RecipeOverrides
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.handle import RunHandle
from cerebro_elastic.runs.start.launch import Launch


@overload
def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: Literal[True] = True,
    **overrides: Unpack[RecipeOverrides],
) -> RunResult: ...


@overload
def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: Literal[False],
    **overrides: Unpack[RecipeOverrides],
) -> RunHandle: ...


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: bool = True,
    **overrides: Unpack[RecipeOverrides],
) -> RunResult | RunHandle:
    """Run a recipe on this machine; an unfinished run of the same id and recipe goes on where it stood.

    ``KeyboardInterrupt`` stops all processes cleanly: nodes finish their units or save them part-way. The
    same call goes on from there.

    Args:
        recipe: A YAML file, a mapping, or a recipe.
        run_id: The run's id, by default the recipe's name.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        fresh: Throw away what a run of this id has left.
        store: An etcd to use, instead of the recipe's or of one that is started for the run.
        grace: Seconds that the nodes have to leave when the run is stopped.
        callbacks: They are called when a unit, an epoch and the run have ended.
        watcher: It gets lines of text and the run's state, as the command line shows them.
        wait: Whether to return when the run has ended. Without, the run goes on in a thread of this process
            and a handle of it is returned at once; a wrong recipe is still refused first.
        **overrides: Top-level keys of the recipe (``epochs=2``). ``search`` may be an ``optuna.Study``: its
            sampler, pruner and enqueued trials are used, and the configs become trials of it.

    Returns:
        The run's result; with ``wait=False`` a ``RunHandle``.

    Raises:
        RecipeError: The recipe is wrong; nothing was started. Other errors of the task, the data or the store
            that are found before the start are ``CerebroError``, too.
        RunError: No node can work any more, or another run has this id.

    Example:
        >>> result = run("sweep.yaml", seed=1)
        >>> len(result.leaderboard)
        2
        >>> result.best.best == max(row.best for row in result.leaderboard)
        True
    """
    launch = Launch.of(
        recipe,
        run_id=run_id,
        home=home,
        fresh=fresh,
        store=store,
        grace=grace,
        callbacks=callbacks,
        overrides=overrides,
    )
    watcher = watcher or Watcher()
    return launch(watcher) if wait else RunHandle(launch.folder, launch.store, launch, watcher)
