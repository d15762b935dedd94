"""``run``: runs a recipe on this machine, or the rest of a stopped run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, overload

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.errors import RunError
from cerebro_elastic.front_end.notebook_view import NotebookView, in_notebook
from cerebro_elastic.front_end.objects import References
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import refuse_in_import
from cerebro_elastic.runs.background import BackgroundRun
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.results.result import RunResult, check_not_all_failed
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.prepare_run import agreement
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.system.departure import stay

OnInterrupt: TypeAlias = Literal["stop", "detach"]
RecipeLike: TypeAlias = str | Path | Mapping[str, Any] | Recipe


class Interrupted(KeyboardInterrupt):
    """The call was interrupted; the message gives the state of the run."""

    def __init__(self, message: str, run: Run | None = None) -> None:
        super().__init__(message)
        self.run = run
        """The run if it continues; ``None`` if it was stopped."""

    def _render_traceback_(self) -> list[str]:
        """IPython's traceback: the message alone, as the place of the interruption is of no use to a user."""
        return [str(self)]


@overload
def run(
    recipe: RecipeLike,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    changed_code: bool = False,
    reuse: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: Literal[True] = True,
    on_interrupt: OnInterrupt = "stop",
    **overrides: Any,
) -> RunResult: ...


@overload
def run(
    recipe: RecipeLike,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    changed_code: bool = False,
    reuse: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: Literal[False],
    on_interrupt: OnInterrupt = "stop",
    **overrides: Any,
) -> Run: ...


def run(
    recipe: RecipeLike,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    changed_code: bool = False,
    reuse: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: bool = True,
    on_interrupt: OnInterrupt = "stop",
    **overrides: Any,
) -> RunResult | Run:
    """Run a recipe on this machine; an unfinished run of the same id and recipe continues where it was left.

    ``KeyboardInterrupt`` stops all processes cleanly: nodes finish their units or save them part-way. The
    same call continues from there. In a notebook the cell shows the run while it is live.

    Args:
        recipe: A YAML file, a mapping, or a recipe. In a mapping, functions and classes may stand for their
            names (``{"model_fn": Net}``): those of importable files, and those that the cells of a notebook
            define.
        run_id: The run's id, by default the recipe's name.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        fresh: Delete the files of an earlier run of this id.
        changed_code: Continue an unfinished run although its code has changed since.
        reuse: Whether configs that earlier runs of the home have trained, with equal code, data and versions,
            continue from there.
        store: An etcd to use, instead of the recipe's or of one started for the run.
        grace: Seconds that the nodes have to leave when the run is stopped.
        callbacks: They are called when a unit, an epoch and the run have ended.
        watcher: It gets lines of text and the run's state, as the command line shows them. A notebook then
            shows nothing by itself.
        wait: Whether to return when the run has ended. Without waiting, the run continues in a thread of this
            process and is returned at once; a wrong recipe is still refused first.
        on_interrupt: The effect of ``KeyboardInterrupt``, such as a notebook's button, during the wait:
            ``stop`` the run, or ``detach`` from it. After ``detach`` it continues in the background of this
            process, and ``Run.open`` returns it.
        **overrides: Top-level keys of the recipe, as for ``load_recipe`` (``epochs=2``). ``search`` may be an
            ``optuna.Study``: its sampler, pruner and enqueued trials are used, and the configs become trials
            of it.

    Returns:
        The run's result; with ``wait=False`` the ``Run``.

    Raises:
        TaskError: The call is in a file that the nodes import, and not below ``if __name__ == "__main__":``.
        RecipeError: The recipe is wrong; nothing was started. Other errors of the task, the data or the store
            that are found before the start are ``CerebroError``, too.
        RunFailed: All configs failed. The message begins with your line that raised; ``error.result`` is the
            run's result. Of a run in which some failed, ``result.failures`` has why.
        RunError: No node can work any more, another run has this id, or the code has changed since the run's
            start.

    Example:
        >>> result = run("sweep.yaml", seed=1)
        >>> len(result.leaderboard)
        2
        >>> result.best.best == max(row.best for row in result.leaderboard)
        True
    """
    refuse_in_import()
    if on_interrupt not in get_args(OnInterrupt):
        raise RunError(f"on_interrupt is {on_interrupt!r}; choices: {', '.join(get_args(OnInterrupt))}")
    recipe, values = _with_references(recipe, overrides)
    launch = Launch.of(
        recipe,
        run_id=run_id,
        home=home,
        fresh=fresh,
        store=store,
        grace=grace,
        callbacks=callbacks,
        agrees=agreement(changed_code),
        reuse=reuse,
        overrides=values,
    )
    run_id, objective = launch.folder.run, launch.recipe.objective
    view = NotebookView(launch.folder, objective) if watcher is None and in_notebook() else None
    watcher = view.watcher if view else watcher or Watcher()

    def start(watcher: Watcher) -> RunResult:
        try:
            with view or nullcontext():
                return check_not_all_failed(launch(watcher))
        finally:
            stay()  # if it was interrupted: the next call has time

    if wait and on_interrupt == "stop":
        try:
            return start(watcher)
        except KeyboardInterrupt:
            raise Interrupted(
                f"run {run_id!r} is stopped; what was committed is safe. The same call continues from there"
            ) from None
    background = BackgroundRun(launch.folder, launch.store, start, watcher, objective)
    if not wait:
        return background
    try:
        return background.wait()
    except KeyboardInterrupt:
        raise Interrupted(
            f"run {run_id!r} continues in the background of this process: Run.open({run_id!r}) is it. Its "
            "wait() waits for the end, its close() stops it.",
            background,
        ) from None


def _with_references(recipe: RecipeLike, overrides: Mapping[str, Any]) -> tuple[RecipeLike, dict[str, Any]]:
    """A recipe and its overrides, with names instead of functions and classes."""
    own: Mapping[str, Any] = recipe if isinstance(recipe, Mapping) else {}
    if isinstance(recipe, Recipe):
        root = recipe.root
    else:
        root = Path.cwd() if isinstance(recipe, Mapping) else Path(recipe).expanduser().resolve().parent
    references = References(root)
    values = references.in_recipe(overrides)
    return references.in_recipe(own) if own else recipe, values
