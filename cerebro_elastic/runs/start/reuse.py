"""Units that earlier runs of the home trained need not be trained again: a run opened with ``--reuse`` takes
them over.

A unit is a pure function of its inputs. So two runs whose units have the same inputs (code, data, recipe,
versions, processor) give equal configs equal results, in any order of the configs and on any node. All these
are compared here; ``core/model/reuse.py`` names the rest, the config's standing. Files read by code are not
seen, so nothing is taken over unless requested.

The states from which configs continue are linked or copied into the new run's storage, so that no run needs
another one afterwards. A file beside them lists them; every machine that leads the run reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise, takewhile
from pathlib import PurePosixPath
from typing import Any

from cerebro_elastic.core.history.derived import Curves, add_point
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.members import members_of_repeats
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import LeaderChanged
from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.reuse import FOLDER, NOTHING, Reusable, standing
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import CerebroError, CheckpointError, IllegalEvent, StorageError
from cerebro_elastic.recipes import Recipe, differences
from cerebro_elastic.recipes.search import OtherSearch, PbtSearch
from cerebro_elastic.runs.catalog import folders
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import first_hparams
from cerebro_elastic.runs.results import record_chain
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.versions import of_units
from cerebro_elastic.system import files
from cerebro_elastic.system.files import locate, translated
from cerebro_elastic.system.ownership import distrust_folder
from cerebro_elastic.system.words import counted, some_of
from cerebro_elastic.worker.rendezvous.compatibility import PACKAGE

_FREE = {
    *("name", "search", "objective", "repeats", "validation.early_stop", "keep", "nodes"),
    *("gang", "parallelism", "etcd", "checkpoints"),
    *("scheduler", "replicas", "fetch", "progress", "loggers", "check", "limits.tries", "limits.configs"),
    *(
        "limits.hang_factor",
        "limits.hang_seconds",
        "node.ranks",
        "node.cache_bytes",
        "node.batch_cache_bytes",
    ),
}
"""The keys of a recipe on which no unit's result depends, apart from its strategy, which is compared for each
visit. A key that is not here counts."""
_AT_ONCE = 100
"""The most visits that one transaction takes over: etcd takes 128 keys, and 1.5 MB."""
_FILE = "reuse.json"


def take_over(spec: Spec, recipe: Recipe, folder: RunFolder, say: Callable[[str], None]) -> Spec:
    """The ``spec`` of a run to be opened in ``folder``, with its reusable results of the other runs of its
    home; ``say`` gets a sentence about them."""
    search = _Search(spec, recipe)
    for other in folders(folder.path.parent):
        if other.path != folder.path and not search.is_done:
            search.look_into(other)
    steps: dict[str, tuple[Visit, ...]] = {}
    sources: dict[str, None] = {}
    for chain in search.longest.values():
        try:
            steps |= dict(_taken(spec, chain))
            sources[chain.run] = None
        except (CheckpointError, StorageError) as error:
            search.differing.setdefault(chain.run, [f"{chain.start.id}: {error}"])
    if sources:
        units = counted(sum(map(len, steps.values())), "unit")
        runs = f"{'run' if len(sources) == 1 else 'runs'} {some_of(list(sources), 3)}"
        say(f"{units} of {counted(len(search.longest), 'config')} are taken over from {runs}")
    elif search.differing:
        run, reasons = min(search.differing.items(), key=lambda item: len(item[1]))
        say(f"nothing is taken over from earlier runs; not from run {run}: {'; '.join(reasons[:3])}")
    else:
        say("nothing is taken over: no earlier run here has trained these configs")
    text = encode(Reusable(steps)).encode()
    with translated(CheckpointError, f"cannot write {_FILE}"):
        files.write(locate(spec.storage) / _FILE, [text])
    return replace(spec, reuse=hashlib.sha256(text).hexdigest())


def read_reusable(spec: Spec, say: Callable[[str], None] = lambda _text: None) -> Reusable:
    """The results that the run of ``spec`` may take over. Without their file, or if it differs, there are
    none: the run trains all units, and ``say`` gets the reason."""
    if not spec.reuse:
        return NOTHING
    place = locate(spec.storage) / _FILE
    try:
        with translated(CheckpointError, f"cannot read {place}"):
            text = files.read(place)
        if hashlib.sha256(text).hexdigest() == spec.reuse:
            return decode(text, Reusable)
        why = f"{place} is not as it was written"
    except (CheckpointError, FileNotFoundError, UnreadableValue) as error:
        why = str(error)
    say(f"nothing is taken over from earlier runs, and all is trained: {why}")
    return NOTHING


@dataclass(frozen=True, slots=True)
class _Chain:
    """An earlier run's results for a config, as far as a new run may begin there."""

    run: str
    start: Config
    """The config as it was created."""
    steps: tuple[tuple[Visit, ...], ...]
    """Its visits, cut at the states that exist to begin from."""
    whole: bool
    """Whether the new run has nothing left to train in it."""

    @property
    def visits(self) -> int:
        return sum(map(len, self.steps))


@dataclass(slots=True)
class _Search:
    """Looks through the records of earlier runs for the run of ``spec``."""

    spec: Spec
    recipe: Recipe
    longest: dict[str, _Chain] = field(default_factory=dict)
    """By a config's start (``standing``): the longest of its chains so far."""
    differing: dict[str, list[str]] = field(default_factory=dict)
    """By run of a recipe in the same folder: why nothing of it may be taken over."""
    wanted: Collection[str] | None = field(init=False)
    """The starts of all configs to come; ``None`` if not known yet."""

    def __post_init__(self) -> None:
        self.wanted = _first(self.spec, self.recipe)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to look for. Reading the records of all runs may take long."""
        return self.wanted is not None and not any(map(self._looks_for, self.wanted))

    def look_into(self, folder: RunFolder) -> None:
        """Look into the record of one run."""
        try:
            theirs = folder.read_spec()
            if theirs.plan.run != folder.run:
                return  # the folder of a machine that joined a run here
            reasons = ["it still runs"] if folder.is_locked() else [*_other(theirs, self.spec)]
            if not reasons:
                result = RunResult(folder)
                reasons = _unsound(result, folder) or self._other_versions(result)
            if reasons:
                if files.here(theirs.root) == self.spec.root:
                    self.differing[folder.run] = reasons
                return
            for config in result.view.state.configs.values():
                if self._looks_for(place := standing(born(config))):
                    self._keep(place, self._chain(result, config))
        except (CerebroError, OSError, KeyError) as error:
            self.differing[folder.run] = [f"its record cannot be read: {error}"]

    def _looks_for(self, place: str) -> bool:
        """Whether a longer chain of the config that begins there is of use."""
        known = self.longest.get(place)
        return (known is None or not known.whole) and (self.wanted is None or place in self.wanted)

    def _keep(self, place: str, chain: _Chain) -> None:
        if chain.steps and (place not in self.longest or chain.visits > self.longest[place].visits):
            self.longest[place] = chain

    def _other_versions(self, result: RunResult) -> list[str]:
        led = [event for event in result.events if isinstance(event, LeaderChanged) and event.versions]
        if not led:
            return ["its record does not say by which versions of packages it was made"]
        here, then = of_units(self.spec, self.recipe), led[-1].versions
        return [
            f"{name} {then.get(name, '(not recorded)')}, now {version}"
            for name, version in here.items()
            if then.get(name) != version
        ]

    def _chain(self, result: RunResult, config: Config) -> _Chain:
        """The run's results for the config by one of the new run's strategies, in trainings of its length."""
        plan, end = self.spec.plan, born(config)

        def fits(visit: Visit) -> bool:
            long = result.spec.epochs_of(config.id, visit.unit.epoch)
            return long == plan.epochs and visit.strategy in plan.strategies

        visits = list(takewhile(fits, _of_this_code(result, config)))
        steps = _steps(self.recipe, self.spec, end, visits)
        for visit in (visit for step in steps for visit in step):
            end = advance(end, visit, plan)
        return _Chain(result.run, born(config), tuple(steps), end.status is not Status.LIVE)


def _first(spec: Spec, recipe: Recipe) -> Collection[str] | None:
    """The starts of the configs of a search that knows all its configs at its start; ``None`` for other
    searches. Those with seeds that only contenders get are among them."""
    if recipe.search.method not in ("grid", "random") or recipe.search.concurrency is not None:
        return None
    most = recipe.repeats.max if recipe.repeats is not None else 1
    members = members_of_repeats(spec.plan, range(most)) if spec.plan.has_members else [(None, 0)]
    return {
        standing(born(Config("", hparams, parent=spec.plan.start, fold=fold, repeat=repeat)))
        for hparams in first_hparams(recipe)
        for fold, repeat in members
    }


def _other(theirs: Spec, ours: Spec) -> Iterator[str]:
    """The inputs of a run's units that differ from ours, by the specs."""
    yield from differences(_binding(theirs.recipe), _binding(ours.recipe))
    if theirs.data_digest != ours.data_digest:
        yield f"other data: digest {theirs.data_digest[:12]}, now {ours.data_digest[:12]}"
    if theirs.version != ours.version:
        yield f"cerebro-elastic {theirs.version}, now {ours.version}"
    for name in sorted({*theirs.code, *ours.code}):
        if theirs.code.get(name) != ours.code.get(name):
            what = "the code of cerebro-elastic" if name == PACKAGE else name
            how = "has changed" if name in theirs.code and name in ours.code else "is new"
            yield f"{what} {how if name in ours.code else 'is not used any more'}"


def _binding(recipe: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The keys of a recipe that a unit's result may depend on."""
    values: dict[str, Any] = {}
    for key, value in recipe.items():
        if f"{prefix}{key}" not in _FREE:
            within = isinstance(value, Mapping)
            values[key] = _binding(value, f"{prefix}{key}.") if within else value
    return {key: value for key, value in values.items() if value != {}}


def _unsound(result: RunResult, folder: RunFolder) -> list[str]:
    """Why the record cannot be trusted: others can write it, it was changed, or it is impossible."""
    if (why := distrust_folder(folder.path)) is not None:
        return [f"{folder.path} {why}"]
    broken = [*record_chain.chain(result.lines)]
    try:
        broken += [f"{found.invariant}: {found.story}" for found in check(result.events)]
        _ = result.view
    except (IllegalEvent, KeyError) as error:
        broken.append(str(error))
    return [f"its record does not verify ({broken[0]})"] if broken else []


def _of_this_code(result: RunResult, config: Config) -> Iterator[Visit]:
    """The config's visits up to the first one trained with code or versions other than the last leader's."""
    led = [event for event in result.events if isinstance(event, LeaderChanged) and event.basis is not None]
    last = basis_of(result.spec).code, (led[-1].versions if led else {})

    def same(visit: Visit) -> bool:
        before = led[:1] if visit.reused else [event for event in led if event.revision < visit.attempt]
        basis = before[-1].basis if before else None
        return basis is not None and (basis.code, before[-1].versions) == last

    return takewhile(same, result.view.visits.get(config.id, ()))


def _steps(recipe: Recipe, spec: Spec, config: Config, visits: Sequence[Visit]) -> list[tuple[Visit, ...]]:
    """The visits of the ``config`` in steps. Each ends with a readable state; that of the best epoch, which
    results need, is readable, too.

    A config passes ends of epochs whose states are gone, as if the search had let it continue: no search
    comes back to them except for the clones of a population, and perhaps a plugin's search.
    """
    comes_back = isinstance(recipe.search, PbtSearch | OtherSearch)
    name, there, cuts = config.id, cache(_readable), [0]
    curves: Curves = {name: ()}
    for number, visit in enumerate(visits, start=1):
        config = advance(config, visit, spec.plan)
        curves = add_point(curves, config, visit, spec.plan)
        if number < len(visits) and visits[number].unit.phase is Phase.EVALUATE:
            continue
        ends = epoch_ends(curves[name])
        best = best_end(ends, recipe.objective, of_member=bool(config.member_of))
        if there(visit.output) and (best is None or there(ends[best].checkpoint)):
            cuts.append(number)
        elif comes_back and config.epoch > visit.unit.epoch:
            break
    return [tuple(visits[begin:end]) for begin, end in pairwise(cuts)]


def _readable(ref: CheckpointRef | None) -> bool:
    from cerebro_elastic.hop import checkpoint

    try:
        if ref is not None:
            checkpoint.verify(_here(ref))
    except CheckpointError:
        return False
    return ref is not None


def _here(ref: CheckpointRef) -> CheckpointRef:
    """The reference with the present place of the files: a home may have been moved."""
    return replace(ref, url=files.here(ref.url))


def _taken(spec: Spec, chain: _Chain) -> Iterator[tuple[str, tuple[Visit, ...]]]:
    """The chain's steps by their starts, with their states and rows in the run's own storage. A step too long
    for a transaction is divided: if only its first part is taken over, the config is at a state that was not
    kept, and the node that needs the state makes it again."""
    at = chain.start
    for step in chain.steps:
        own = list(_own(spec.storage, chain, step))
        for first in range(0, len(own), _AT_ONCE):
            part = tuple(own[first : first + _AT_ONCE])
            yield standing(at), part
            for visit in part:
                at = advance(at, visit, spec.plan)


def _own(storage: str, chain: _Chain, step: Sequence[Visit]) -> Iterator[Visit]:
    """The visits in the new run. The state at the end of the step, and each existing one of an epoch's end,
    are linked; the others were deleted earlier, as in any run."""
    from cerebro_elastic.hop import checkpoint

    name = f"{FOLDER}{chain.run}-{chain.start.id}"

    def ours(of: CheckpointRef) -> CheckpointRef:
        return replace(of, url=f"{storage}/checkpoints/{name}/{PurePosixPath(of.url).name}")

    for visit, after in zip(step, [*step[1:], None], strict=True):
        output = ours(visit.output)
        if after is None:
            checkpoint.adopt(_here(visit.output), output.url)
        elif after.unit.epoch > visit.unit.epoch:
            with suppress(CheckpointError):
                checkpoint.adopt(_here(visit.output), output.url)
        log = visit.log
        if log is not None:
            before, log = files.here(log), f"{storage}/logs/{name}/{PurePosixPath(log).name}"
            with translated(CheckpointError, f"cannot copy {before}"):
                files.copy(locate(before), locate(log))
        yield replace(
            visit,
            input=None if visit.input is None else ours(visit.input),
            output=output,
            log=log,
            attempt=0,
            reused=visit.reused or chain.run,
        )
