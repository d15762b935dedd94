"""``cerebro join``: this machine becomes a node of a live run, and a candidate for its lead."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec, specs_of
from cerebro_elastic.core.model.state import State
from cerebro_elastic.data.manifest import check_unchanged, verify_sizes
from cerebro_elastic.errors import FolderInUse, RunError
from cerebro_elastic.runs.attach import live_run, record_in
from cerebro_elastic.runs.folder import RunFolder, check_id, run_folder
from cerebro_elastic.runs.owner import is_claimed
from cerebro_elastic.runs.results.report import write_results
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.start.agents import LocalAgents
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.machine import accelerators_of
from cerebro_elastic.runs.start.participate import present, publish_endpoint, take_part
from cerebro_elastic.runs.start.prepare_run import write_spec
from cerebro_elastic.runs.start.room import check_count, check_part
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import locate as locate_files
from cerebro_elastic.system.files import redacted
from cerebro_elastic.worker.rendezvous.compatibility import check_compatible


class NodesLeft(Exception):
    """This machine's nodes have left the run on request."""


def join(
    run: str | Path,
    *,
    home: str | Path | None = None,
    store: StoreSettings | None = None,
    name: str | None = None,
    nodes: int | None = None,
    grace: float = GRACE,
    watcher: Watcher | None = None,
) -> RunResult:
    """Make this machine a node of a live run, until the run has ended or the node was asked to leave.

    The machine may also lead the run. ``KeyboardInterrupt`` lets its nodes leave.

    Args:
        run: The run's id, or its folder on this machine.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``. A record of the run, and the
            nodes' logs, are written to a folder in it.
        store: The run's etcd, by default that of the run in ``home``.
        name: The node's name, by default the host's with a random suffix.
        nodes: Number of nodes of this machine; they share its accelerators and their numbers follow ``name``.
            By default one for each accelerator, or for each ``node.ranks`` of them; one without any.
        grace: Seconds that the nodes have to leave when they are stopped.
        watcher: It gets lines of text and the run's state, as the command line shows them.

    Returns:
        The run's result at the moment when this machine leaves it.

    Raises:
        RunError: This machine cannot join, or its nodes cannot work.

    Example:
        >>> result = join("live", name="helper")
        >>> result.run
        'live'
    """
    watcher = watcher or Watcher()
    if nodes is not None:
        check_count(nodes)
    run_id, settings = Run.open(run, home=home, store=store).live_place()
    with record_in(settings, run_id) as record, present(record):
        return join_as(nodes, name, run_id, settings, home=home, grace=grace, watcher=watcher)


def node_names(nodes: int, name: str | None = None) -> list[str]:
    """The names of this machine's nodes."""
    check_count(nodes)
    name = f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}" if name is None else name
    return [name] if nodes == 1 else [f"{name}-{i}" for i in range(nodes)]


def join_as(
    nodes: int | None,
    name: str | None,
    run_id: str,
    settings: StoreSettings,
    *,
    home: str | Path | None,
    grace: float,
    watcher: Watcher,
    imports: SharedImports | None = None,
) -> RunResult:
    """``join``. ``imports`` have begun; by default new ones are begun here."""
    with ExitStack() as stack:
        imports = stack.enter_context(imports or SharedImports())
        record, spec = stack.enter_context(live_run(run_id, settings))
        check_compatible(spec, package=True)
        recipe = spec.load_recipe()
        accelerators = accelerators_of(recipe, imports.agents)
        names = node_names(accelerators.nodes_of(recipe) if nodes is None else nodes, name)
        for node in names:
            _check(record, spec, node)
        _check_files(spec)
        folder = stack.enter_context(own_folder(spec, names[0], home))
        _check_folder(folder, spec)
        _check_data(spec)
        for note in check_part(recipe, len(names), accelerators):
            watcher.say(f"note: {note}")
        write_spec(folder, spec)
        if settings.run_key is not None:
            settings = replace(settings, run_key=settings.run_key.kept_in(folder.key))
        stack.enter_context(publish_endpoint(folder, settings))
        env = imports.load(recipe, folder, watcher.say)

        def stop_condition(agents: LocalAgents, _events: list[Event], _state: State) -> None:
            if agents.left:
                raise NodesLeft
            if agents.gone and not agents.saw_the_end:
                raise RunError(f"this machine cannot be a node of the run: {agents.last_error()}")

        nodes_text, where = ", ".join(names), accelerators.text(len(names), recipe.node.ranks)
        watcher.say(
            f"joining run {spec.plan.run!r} as {nodes_text}{where and ' '}{where} (its imports take a few "
            "seconds)"
        )
        try:
            take_part(
                record,
                spec,
                folder,
                settings,
                names,
                stop_condition,
                journal=Journal(folder.history),
                grace=grace,
                watcher=watcher,
                env=env,
                accelerators=accelerators,
            )
        except NodesLeft:
            watcher.say(f"{nodes_text} left the run")
        return write_results(folder, watcher)


def _check(record: Record, spec: Spec, node: str) -> None:
    """Check that this machine can be the run's ``node``, as far as that is known without torch."""
    run = spec.plan.run
    check_id(node, "the node's name")
    taken = record.node(node)
    if taken is not None:
        raise RunError(
            f"run {run!r} has a node {node!r} already, on {taken.host}: choose another --name; if it has "
            "just died, its name is free in some seconds"
        )


def _check_files(spec: Spec) -> None:
    """Check that this machine sees the run's own folders, and not others with the same paths."""
    for what, url, key in (("data", spec.data, "data.url"), ("checkpoints", spec.storage, "checkpoints")):
        place = locate_files(url)
        if place.local and not Path(place.path).is_dir():
            raise RunError(
                f"the {what} of run {spec.plan.run!r} lie in {place.path}, which is not on this "
                f"machine: give `{key}` in the recipe, a URL or folder that all machines of the run reach"
            )
    if spec.recipe.get("checkpoints") is not None and not is_claimed(spec.storage):
        raise RunError(
            f"this machine does not see in {redacted(spec.storage)} what the run's first machine has written "
            "there: give `checkpoints` in the recipe, a URL or folder that all machines of the run share"
        )


def _check_data(spec: Spec) -> None:
    """Check that this machine has the run's whole dataset. At a URL all machines see the same."""
    if locate_files(spec.data).local:
        verify_sizes(spec.data, check_unchanged(spec.data, spec.data_digest))


@contextmanager
def own_folder(spec: Spec, name: str, home: str | Path | None) -> Iterator[RunFolder]:
    """Lock the run's folder, or one beside it if another process on this machine keeps the run's record
    there."""
    with ExitStack() as stack:
        folder = run_folder(spec.plan.run, home)
        try:
            stack.enter_context(folder.locked())
        except FolderInUse:
            folder = run_folder(f"{spec.plan.run}.{name}", home)
            stack.enter_context(folder.locked())
        yield folder


def _check_folder(folder: RunFolder, spec: Spec) -> None:
    """Check that ``folder`` is one of the run's, or empty."""
    known = [replace(each, code={}) for each in specs_of(spec)]
    if folder.spec.exists() and replace(folder.read_spec(), code={}) not in known:
        raise RunError(f"{folder.path} holds another run of the id {spec.plan.run!r}: choose another --home")
