"""People's actions on a live run: stop, resume and add configs, let nodes leave, end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cerebro_elastic.config import A_DAY
from cerebro_elastic.core.history.members import status_of
from cerebro_elastic.core.history.progress import at_end
from cerebro_elastic.core.history.view import ConfigHistory
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.configs import Config, ConfigStart, Status
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.recipes.search import active, flattened
from cerebro_elastic.runs.attach import ended_error, live_run, trainings_named
from cerebro_elastic.runs.recorded import RecordedRun
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.sampling import contains, misfit, written_alike
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.operators import Allowance, OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.words import for_reader, option, with_name

_END_SECONDS, _END_PAUSE = 30.0, 0.1


class ControlledRun(RecordedRun):
    """A live run's changes. Each is one transaction, and is recorded in the history."""

    def stop(self, config: str, *, reason: str = "stopped by hand", by: str = "") -> Config:
        """Stop a config. Its present unit does not count; all its committed units stay.

        Args:
            config: The config's id. One that has several trainings is stopped with all of them.
            reason: Why, for the record.
            by: The name of the person who requests it, for the record.

        Returns:
            The config after the change; of several trainings, the first that was stopped for this reason.
            (Others may have been stopped earlier.)

        Raises:
            RunError: The run is not live, or has no such config that could be stopped.

        Example:
            >>> Run.open("live").stop("c0001", reason="diverges").status
            <Status.STOPPED: 'stopped'>
        """
        why = with_name(reason, by)
        with live_run(*self.live_place()) as (record, _):
            members = _members(record, config)
            due = [each for each in members if not (members[1:] and each.status is Status.FINISHED)]
            ended = [_known(record, e.id, OperatorLedger(record).stop(e.id, why)) for e in due or members]
            stopped = [each for each in ended if each.status is Status.STOPPED]
            if not stopped:
                status = status_of(each.status for each in ended).value
                raise RunError(f"config {config!r} is {status} already: only a live one can be stopped")
            return next((each for each in stopped if each.reason == why), stopped[0])

    def resume(self, config: str, *, reason: str = "resumed by hand", by: str = "") -> Config:
        """Let a config, stopped by a person or the search, continue to its end. It restarts the unit in which
        it was stopped.

        Args:
            config: The config's id.
            reason: Why, for the record.
            by: The name of the person who requests it, for the record.

        Returns:
            The config after the change.

        Raises:
            RunError: The run is not live, or has no such config that could continue.

        Example:
            >>> Run.open("live").resume("c0001").status
            <Status.LIVE: 'live'>
        """
        with live_run(*self.live_place()) as (record, _):
            members = _members(record, config)
            stopped = [each for each in members if each.status is Status.STOPPED]
            status = status_of(each.status for each in members)
            if not stopped and status is Status.LIVE:
                raise RunError(f"config {config!r} is live: only a stopped one can be resumed")
            if not stopped and status is Status.FAILED:
                again = for_reader(f"cerebro retry {self.id} {config}", f"Run.retry([{config!r}])")
                raise RunError(f"config {config!r} has failed: to have it tried again: {again}")
            ledger, due = OperatorLedger(record), stopped or members
            why = with_name(reason, by)
            now = [_known(record, each.id, ledger.resume(each.id, why)) for each in due]
            resumed = next((each for each in now if each.status is Status.LIVE), None)
            if resumed is None:
                raise RunError(f"config {config!r} is {status.value}: only a stopped one can continue")
            return resumed

    def add(
        self,
        hparams: Mapping[str, Any] | None = None,
        *,
        like: str | None = None,
        start: ConfigStart = "scratch",
        reason: str = "",
        by: str = "",
        allowance: Allowance | None = None,
    ) -> Config:
        """Add a config: your own point, or another config with some hyper-parameters changed. The record
        calls that a clone of the other one, its parent, whose present unit continues.

        Args:
            hparams: Its hyper-parameters.
            like: The id of the parent, which has the other hyper-parameters; without it ``hparams`` must name
                all.
            start: ``scratch``: it starts from scratch; ``here``: from the parent's present state; ``best``:
                from that of the parent's best epoch.
            reason: Why, for the record.
            by: The name of the person who requests it, for the record.
            allowance: The allowance of the agent that adds it, if one does. A person may leave the search's
                space, an agent may not.

        Returns:
            The new config; of several trainings, the first.

        Raises:
            RunError: The run is not live, has no such config, hyper-parameter or checkpoint, or has a config
                with the same hyper-parameters and the same start: the message names it.

        Example:
            >>> Run.open("live").add({"lr": 0.01}, like="c0000").hparams
            {'lr': 0.01}
        """
        hparams = hparams or {}
        if like is None:
            if start != "scratch":
                raise RunError(
                    f"{start!r} is a state of another config: name that config with {option('like')}"
                )
            like = self._of_one_kind(hparams)
        default = "added by hand" if start == "scratch" else f"cloned from {like}"
        why = with_name(reason or default, by)
        with live_run(*self.live_place()) as (record, spec):
            parents = _members(record, like)
            changed, left = _checked(like, parents[0], hparams, spec.space)
            if allowance is not None:
                kept = {key: value for key, value in parents[0].hparams.items() if key not in left}
                _check_in_space(spec.load_recipe(), changed, {**kept, **changed})
            begins: Mapping[str, Callable[[Config], Config | None]] = {
                "here": lambda parent: parent,
                "best": lambda parent: _at_best(record, spec, parent),
                "scratch": lambda _parent: None,
            }
            new = OperatorLedger(record).clone(like, changed, begins[start], why, allowance, without=left)
            return _known(record, like, new)

    def _of_one_kind(self, hparams: Mapping[str, Any]) -> str:
        """A config whose hyper-parameters are all among ``hparams``. In a space with branches, configs have
        different ones."""
        kinds = {config.seen_as: set(config.hparams) for config in self.status().configs.values()}
        alike = (name for name, names in kinds.items() if names <= set(hparams))
        like = next(alike, next(iter(kinds), None))
        if like is None:
            raise RunError(f"run {self.id!r} has no config yet: add one once it has")
        of_one_kind = len(set(map(frozenset, kinds.values()))) == 1
        if of_one_kind and (missing := sorted(kinds[like] - set(hparams))):
            raise RunError(
                f"the new config lacks {', '.join(missing)}: give all hyper-parameters, or name a config "
                f"that has the others with {option('like')}"
            )
        return like

    def drain(self, node: str, *, grace: float = A_DAY) -> None:
        """Ask a node to leave: it gets no more units, and then ends.

        Args:
            node: The node's name.
            grace: Seconds for its present unit. A longer unit is handed on at a batch boundary.

        Raises:
            RunError: The run is not live, or has no such node.
        """
        if grace < 0:
            raise RunError(f"grace is {grace:g}: give a number of seconds from 0 on")
        with live_run(*self.live_place()) as (record, _):
            if not NodeLedger(record).drain(node, grace):
                nodes = record.state().nodes
                raise RunError(
                    f"no node {node!r} is registered in run {self.id!r}; {did_you_mean(node, nodes)}"
                )

    def end(self, *, reason: str = "the run was ended by hand", by: str = "") -> int:
        """Stop all live configs, including new ones that the search proposes in their place, until the leader
        ends the run. Their committed units stay.

        Args:
            reason: Why, for the record of each config.
            by: The name of the person who requests it, for the record.

        Returns:
            The number of configs that were stopped.

        Raises:
            RunError: The run is not live, or has not ended after 30 seconds.
        """
        stopped: set[str] = set()
        until = time.monotonic() + _END_SECONDS
        with live_run(*self.live_place()) as (record, _):
            while not record.ended():
                state = record.state()
                live = [name for name, config in state.configs.items() if config.status is Status.LIVE]
                for name in live:
                    OperatorLedger(record).stop(name, with_name(reason, by))
                stopped.update(live)
                if state.leader is None and not live:
                    raise RunError(
                        f"all configs of run {self.id!r} are stopped, but no controller leads it: it ends "
                        "once one does"
                    )
                if time.monotonic() > until:
                    raise RunError(
                        f"run {self.id!r} has not ended after {_END_SECONDS:g} s, in which {len(stopped)} "
                        "configs were stopped: its search proposes new ones. Stop the command that runs it"
                    )
                time.sleep(_END_PAUSE)
        return len(stopped)


def _checked(
    name: str, parent: Config, hparams: Mapping[str, Any], space: Mapping[str, Domain]
) -> tuple[dict[str, Any], list[str]]:
    """Check the differences from a parent, in a run with this ``space``.

    Returns:
        The changes, with types as in the space; and the parent's hyper-parameters that the clone lacks
        because it takes another branch.

    Raises:
        RunError: The parent, or the branch that the clone takes, does not have these hyper-parameters, lacks
            a value, or a value is not as in the space, or else like the parent's.
    """
    here = active(space, {**parent.hparams, **hparams})
    left = active(space, parent.hparams).keys() - here.keys()
    known = {*parent.hparams, *here} - left
    changed = {}
    for key, value in hparams.items():
        if key not in known:
            near = did_you_mean(key, known)
            branch = ", in the branch that it takes" if key in left or key in flattened(space) else ""
            raise RunError(f"config {name!r} has no hyper-parameter {key!r}{branch}; {near}")
        own = parent.hparams.get(key)
        domain = here[key] if key in here else Domain.model_validate([own])
        value = changed[key] = written_alike(domain, value)
        other_type = own is not None and type(value) is not type(own)
        expected = misfit(domain, value)
        if expected is not None and (key in here or other_type):
            has = f"; {name} has {own!r}" if key in parent.hparams else ""
            raise RunError(f"{key}={value!r}: {key} has to be {expected}{has}")
    if missing := sorted(here.keys() - {*parent.hparams, *changed}):
        raise RunError(f"the branch that the clone takes needs {', '.join(missing)}: give a value of each")
    return changed, sorted(left)


def _check_in_space(recipe: Recipe, changed: Mapping[str, Any], hparams: Mapping[str, Any]) -> None:
    """Raise ``RunError`` unless the changed values lie in the recipe's space, and all hyper-parameters of the
    config satisfy its constraints."""
    space = active(recipe.search.space, hparams)
    for key, value in changed.items():
        domain = space.get(key)
        if domain is not None and not contains(domain, value):
            raise RunError(f"{key}={value} lies outside the search's space, {domain}")
    if not constraint_of(recipe)(hparams):
        raise RunError(
            f"{dict(hparams)} breaks a constraint of the search: {'; '.join(recipe.search.constraints)}"
        )


def _at_best(record: Record, spec: Spec, parent: Config) -> Config:
    """The parent as it was at the end of its best epoch, whose checkpoint is kept."""
    objective = spec.objective
    ends = epoch_ends(ConfigHistory.of(parent, record.visits_of(parent.id), spec.plan).curve)
    place = best_end(ends, objective, of_member=bool(parent.member_of))
    if place is None:
        raise RunError(
            f"config {parent.id!r} has no best epoch yet: none has ended with a finite value of "
            f"{objective.metric!r}"
        )
    return at_end(parent, ends[place])


def _members(record: Record, name: str) -> list[Config]:
    return trainings_named(record.keys.run, record.state().configs, name)


def _known(record: Record, name: str, config: Config | None) -> Config:
    if config is None:
        if record.ended():
            raise ended_error(record.keys.run)
        raise RunError(f"run {record.keys.run!r} has no config {name!r} any more")
    return config
