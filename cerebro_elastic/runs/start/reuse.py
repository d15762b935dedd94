"""What need not be trained, since an earlier run has trained it: found in the records of earlier runs when a
run is opened.

A unit is a pure function of what it reads. So two runs whose units read the same (code, data, recipe,
versions, processor) give equal configs equal results, in any order of the configs and on any node. All that
is compared here; ``core/model/reuse.py`` names the rest, where a config stands. Files that code reads are not
seen, so nothing is taken over unless somebody asks: else the run says what there is.

The states from which configs go on are linked or copied into the new run's storage, so that no run needs
another one afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from cerebro_elastic.core.history.derived import Curves, add_point
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.members import members_of_repeats
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import LeaderChanged
from cerebro_elastic.core.model.origin import basis_of, values_digest
from cerebro_elastic.core.model.reuse import FOLDER, Reusable, standing
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import CerebroError, CheckpointError, IllegalEvent, RunError, StorageError
from cerebro_elastic.recipes import Recipe, differences
from cerebro_elastic.recipes.search import (
    Budget,
    OtherSearch,
    PbtSearch,
    ReplaySearch,
    SampledSearch,
    SearchSection,
)
from cerebro_elastic.runs.catalog import beginnings, folders
from cerebro_elastic.runs.folder import RunFolder, find_run
from cerebro_elastic.runs.from_recipe import first_hparams
from cerebro_elastic.runs.results import record_chain
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.reusable import read_reusable, write_reusable
from cerebro_elastic.runs.versions import of_units
from cerebro_elastic.system import files
from cerebro_elastic.system.files import locate, translated
from cerebro_elastic.system.ownership import distrust_folder
from cerebro_elastic.system.words import counted, for_reader, option, some_of
from cerebro_elastic.worker.rendezvous.compatibility import PACKAGE

Reuse: TypeAlias = bool | str | Path
"""Whether a run takes over what earlier runs of its home have made; or the one run to take it from."""

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
"""The keys of a recipe that no unit's result depends on, apart from its strategy, which is compared for each
visit. A key that is not here counts."""
VARIABLE = "CEREBRO_REUSE"
"""The environment variable by which runs take over what earlier ones have made, if it is ``on``."""
_AT_ONCE = 100
"""The most visits that one transaction takes over: etcd takes 128 keys, and 1.5 MB."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """What an earlier run has made of a config, as far as a new run may begin there."""

    run: RunResult
    start: Config
    """The config as it was created."""
    steps: tuple[tuple[Visit, ...], ...]
    """Its visits, cut at the states that are there to begin from."""
    whole: bool
    """Whether the new run has nothing left to train of it."""

    @property
    def visits(self) -> int:
        return sum(map(len, self.steps))


@dataclass(slots=True)
class _Search:
    """Looks through the records of earlier runs for the run of ``spec``."""

    spec: Spec
    recipe: Recipe
    named: bool
    """A person has named the run: why nothing of it may be taken over counts, wherever its recipe lies."""
    takes: bool
    """Whether what is found is to be taken over, and so has to be there."""
    wanted: Collection[str] | None
    """Where the configs begin that there will be (``standing``); ``None`` if that is not known yet."""
    why_not: dict[str, list[str]] = field(default_factory=dict)
    """By run of a recipe in the same folder: why nothing of it may be taken over, or less than all."""
    equal: list[str] = field(default_factory=list)
    """The runs whose units read the same, by their specs."""
    lacking: dict[str, str] = field(default_factory=dict)
    """By where a config begins: why what an earlier run has trained of it is not taken over."""
    whole: set[str] = field(default_factory=set)
    """Where configs begin of which nothing is left to train: no other run is looked at for them."""

    @property
    def is_done(self) -> bool:
        return self.wanted is not None and self.whole.issuperset(self.wanted)

    def chains(self, folder: RunFolder, name: str, moved: Mapping[str, str]) -> Iterator[_Chain]:
        """Those of one run, which is called ``name``; of files that were ``moved``, where they are now."""
        found: list[str] = []
        if self.named:
            self.why_not[name] = found
        try:
            theirs = folder.read_spec()
            if files.here(theirs.root) == self.spec.root:
                self.why_not[name] = found
            if (why := distrust_folder(folder.path)) is not None:
                raise RunError(f"{folder.path} {why}")
            if theirs.plan.run != name:
                return  # what a machine has kept that joined a run here
            reasons = ["it still runs"] if folder.is_locked() else list(self._other(theirs))
            if not reasons:
                self.equal.append(name)
                if not any(map(self._looks_for, beginnings(folder, theirs))):
                    return
                result = RunResult(folder)
                reasons += self._unsound(result) or self._other_versions(result)
            if reasons:
                found += reasons
                self.equal = [equal for equal in self.equal if equal != name]
                return
            for config in result.view.state.configs.values():
                place = standing(born(config))
                if not self._looks_for(place):
                    continue
                if (chain := self._chain(result, config, moved)) is not None:
                    if chain.whole:
                        self.whole.add(place)
                    yield chain
        except (CerebroError, OSError, KeyError) as error:
            found.append(f"its record cannot be read: {error}")

    def _looks_for(self, place: str) -> bool:
        """Whether more than is known by now of the config that begins there is of use."""
        return place not in self.whole and (self.wanted is None or place in self.wanted)

    def lacks(self, run: str, starts: Sequence[Config], why: str, *, each: bool = True) -> None:
        """Note why nothing of what a run has trained of these configs is taken over: a reason of ``each``, or
        one of the run."""
        for start in starts:
            self.lacking.setdefault(standing(start), f"run {run}, {start.id}: {why}")
        self.why_not.get(run, []).extend([f"{start.id}: {why}" for start in starts] if each else [why])

    def _other(self, theirs: Spec) -> Iterator[str]:
        """What its units read that is another here, by the specs."""
        ours = self.spec
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

    def _unsound(self, result: RunResult) -> list[str]:
        """Why the record cannot be believed: it was changed, or cannot be."""
        broken = [*record_chain.chain(result.lines)]
        try:
            broken += [f"{found.invariant}: {found.story}" for found in check(result.events)]
            _ = result.view
        except (IllegalEvent, KeyError) as error:
            broken.append(str(error))
        way = for_reader(f"`cerebro verify {result.run}`", f"Run.open({result.run!r}).verify()")
        return [f"its record does not verify ({broken[0]}): see {way}"] if broken else []

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

    def _chain(self, result: RunResult, config: Config, moved: Mapping[str, str]) -> _Chain | None:
        plan, start = self.spec.plan, born(config)

        def of_this_length(visit: Visit) -> bool:
            return result.spec.epochs_of(config.id, visit.unit.epoch) == plan.epochs

        made = _until(_of_this_code(result, config), of_this_length)
        if not made:
            return None
        visits = [_here(visit, moved) for visit in _until(made, lambda v: v.strategy in plan.strategies)]
        if not visits:
            self.lacks(result.run, [start], f"trained by {made[0].strategy}, which is none of this recipe")
            return None
        steps = _steps(self.recipe, self.spec, start, visits) if self.takes else [tuple(visits)]
        if not steps:
            self.lacks(
                result.run,
                [start],
                f"{counted(len(visits), 'unit')}, but no state to begin from: `keep: epochs` in its recipe "
                "would have kept those of all epochs",
            )
            return None
        end = start
        for visit in (visit for step in steps for visit in step):
            end = advance(end, visit, plan)
        return _Chain(result, start, tuple(steps), end.status is not Status.LIVE)


def looks(reuse: Reuse, folder: RunFolder) -> Reuse:
    """``reuse``, or what the environment says instead of the default. Raises ``RunError`` for a run that is
    not there, or is the one in ``folder``, and for another word in the environment."""
    if not isinstance(reuse, bool):
        _named(reuse, folder)
        return reuse
    word = os.environ.get(VARIABLE) or "off"
    if word not in ("on", "off"):
        raise RunError(f"{VARIABLE} is {word!r}: choices: on, off")
    return reuse or word == "on"


def noting(
    folder: RunFolder, reuse: Reuse, say: Callable[[str], None], former: RunFolder | None = None
) -> Callable[[Spec, Recipe], Spec]:
    """What looks for earlier runs when the run in ``folder`` is opened, and notes in its spec what is taken;
    ``say`` gets a sentence about it. Arguments as of ``find``."""

    def with_reusable(spec: Spec, recipe: Recipe) -> Spec:
        after, text = find(spec, recipe, folder, reuse, former)
        if text:
            say(text)
        return after

    return with_reusable


def find(
    spec: Spec,
    recipe: Recipe,
    folder: RunFolder,
    reuse: Reuse,
    former: RunFolder | None = None,
) -> tuple[Spec, str]:
    """Look for what the run of ``spec``, which is to be opened in ``folder``, may take over.

    Args:
        spec: The run's spec.
        recipe: Its recipe.
        folder: Its folder. The other runs in the same home are looked at.
        reuse: Whether to take over what there is, or the run to take it from.
        former: The run of this id that is put aside to be deleted.

    Returns:
        The spec, which says what is taken over, and a sentence about that, or what could be, for people; ""
        if there is nothing.

    Raises:
        RunError: There is no run of this name, it still runs, or nothing of it may be taken over.
    """
    named = None if isinstance(reuse, bool) else _named(reuse, folder)
    first = _first(spec, recipe)
    wanted = None if first is None else [standing(config) for config in first]
    search = _Search(spec, recipe, named is not None, reuse is not False, wanted)
    chains: list[_Chain] = []
    for source in [named] if named is not None else _earlier(folder, former):
        if search.is_done:
            break  # to read the records of all runs may take long
        moved = {str(folder.path): str(former.path)} if former is not None and source is former else {}
        chains += search.chains(source, folder.run if moved else source.run, moved)
    if reuse is False:
        return spec, _offer(spec, recipe, first, _longest(chains))
    if named is not None and not chains:
        found = search.why_not.get(named.run, ())
        reasons = "\n".join(f"  {why}" for why in found) or "  none of these configs was trained in it"
        raise RunError(
            f"nothing of run {named.run!r} may be taken over:\n{reasons}\n"
            f"run without {option('reuse-from', 'reuse')} to train all"
        )
    longest = _longest(chains)
    steps: dict[str, tuple[Visit, ...]] = {}
    with _nothing_left_behind(spec.storage, longest.values()):
        for chain in longest.values():
            try:
                steps |= dict(_taken(spec, chain))
            except (CheckpointError, StorageError) as error:
                search.lacks(chain.run.run, [chain.start], str(error))
        why_not = {run: tuple(why) for run, why in search.why_not.items() if why}
        reusable = Reusable(steps, why_not, tuple(search.equal), search.lacking)
        after = replace(spec, reuse=write_reusable(spec.storage, reusable))
    return after, _sentence(reusable, first)


@contextmanager
def _nothing_left_behind(storage: str, chains: Iterable[_Chain]) -> Iterator[None]:
    """If the block fails, what it has linked or copied of the ``chains`` is removed: the run may not be
    started again."""
    names = [f"{kind}/{_folder(chain)}" for chain in chains for kind in ("checkpoints", "logs")]
    new = [place for name in names if not files.exists(place := locate(f"{storage}/{name}"))]
    try:
        yield
    except BaseException:
        for place in new:
            with suppress(CerebroError):
                files.remove(place)
        raise


def delete_all_but_reused(storage: str, spec: Spec) -> None:
    """Delete the checkpoints and logs in ``storage`` that the run of ``spec``, which has not begun, does not
    take over; all, if that is elsewhere."""
    if storage != spec.storage:
        files.remove(locate(storage))
        return
    steps = read_reusable(spec).steps.values()
    own = {PurePosixPath(visit.output.url).parent.name for visits in steps for visit in visits}
    for kind in ("checkpoints", "logs", "record"):
        place = locate(f"{storage}/{kind}")
        for name in files.folders(place) if files.exists(place) else ():
            if name not in own:
                files.remove(place / name)


def _named(reuse: str | Path, folder: RunFolder) -> RunFolder:
    source = find_run(str(reuse), folder.path.parent)
    if source.path == folder.path:
        raise RunError(f"{option('reuse')} {reuse} is this run itself: name an earlier one")
    return source


def _earlier(folder: RunFolder, former: RunFolder | None) -> list[RunFolder]:
    """The runs to look at, the last one first."""
    others = [other for other in folders(folder.path.parent) if other.path != folder.path]
    return [former, *others] if former is not None and former.spec.exists() else others


def _binding(recipe: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The keys of a recipe that a unit's result may depend on."""
    values: dict[str, Any] = {}
    for key, value in recipe.items():
        if f"{prefix}{key}" not in _FREE:
            within = isinstance(value, Mapping)
            values[key] = _binding(value, f"{prefix}{key}.") if within else value
    return {key: value for key, value in values.items() if value != {}}


def _of_this_code(result: RunResult, config: Config) -> list[Visit]:
    """The config's visits up to the first one that was trained with other code or versions than the last
    leader's."""
    led = [event for event in result.events if isinstance(event, LeaderChanged) and event.basis is not None]
    last = basis_of(result.spec).code, (led[-1].versions if led else {})

    def same(visit: Visit) -> bool:
        before = led[:1] if visit.reused else [event for event in led if event.revision < visit.attempt]
        basis = before[-1].basis if before else None
        return basis is not None and (basis.code, before[-1].versions) == last

    return _until(result.view.visits.get(config.id, ()), same)


def _until(visits: Sequence[Visit], holds: Callable[[Visit], bool]) -> list[Visit]:
    found = []
    for visit in visits:
        if not holds(visit):
            break
        found.append(visit)
    return found


def _here(visit: Visit, moved: Mapping[str, str]) -> Visit:
    """The visit with the places where its files are now."""

    def place(url: str) -> str:
        url = files.here(url)
        for before, after in moved.items():
            if url.startswith(f"{before}/"):
                return after + url.removeprefix(before)
        return url

    def ref(of: CheckpointRef | None) -> CheckpointRef | None:
        return None if of is None else replace(of, url=place(of.url))

    output = replace(visit.output, url=place(visit.output.url))
    log = None if visit.log is None else place(visit.log)
    return replace(visit, input=ref(visit.input), output=output, log=log)


def _steps(recipe: Recipe, spec: Spec, start: Config, visits: Sequence[Visit]) -> list[tuple[Visit, ...]]:
    """The visits in steps, each of which ends with a state that can be read.

    A search that trains every config to its end needs the last one, and the best epoch's, which results need.
    One that may stop a config at an epoch's end gets a step to each whose state is there. A config passes the
    others, as if the search had let it go on: none comes back to them, but for the clones of a population,
    and for what a search of a plugin may do.
    """
    section = recipe.search
    to_the_end = type(section) in (SearchSection, SampledSearch) and section.budget == Budget()
    comes_back = isinstance(section, PbtSearch | ReplaySearch | OtherSearch)
    objective = recipe.objective
    config = start
    curves: Curves = {start.id: ()}
    needed: list[tuple[int, list[CheckpointRef | None], bool]] = []
    for number, visit in enumerate(visits, start=1):
        config = advance(config, visit, spec.plan)
        curves = add_point(curves, config, visit, spec.plan)
        ends = epoch_ends(curves[start.id])
        best = best_end(ends, objective, of_member=bool(start.member_of))
        refs = [visit.output, *([] if best is None else [ends[best].checkpoint])]
        if number == len(visits) or visits[number].unit.phase is not Phase.EVALUATE:
            needed.append((number, refs, config.epoch > visit.unit.epoch))
    there = cache(_readable)
    if to_the_end:
        cut = next((number for number, refs, _ in reversed(needed) if all(map(there, refs))), 0)
        return [tuple(visits[:cut])] if cut else []
    cuts = [0]
    for number, refs, ends_epoch in needed:
        if all(map(there, refs)):
            cuts.append(number)
        elif ends_epoch and comes_back:
            break
    return [tuple(visits[begin:end]) for begin, end in pairwise(cuts)]


def _readable(ref: CheckpointRef | None) -> bool:
    if ref is None:
        return False
    from cerebro_elastic.hop import checkpoint

    try:
        checkpoint.verify(ref)
    except CheckpointError:
        return False
    return True


def _first(spec: Spec, recipe: Recipe) -> list[Config] | None:
    """The configs of a search that says at its start which there will be; ``None`` for others. Those with
    seeds that only contenders get are among them."""
    if recipe.search.method not in ("grid", "random") or recipe.search.concurrency is not None:
        return None
    most = recipe.repeats.max if recipe.repeats is not None else 1
    members = members_of_repeats(spec.plan, range(most)) if spec.plan.has_members else [(None, 0)]
    return [
        born(Config("", hparams, parent=spec.plan.start, fold=fold, repeat=repeat))
        for hparams in first_hparams(recipe)
        for fold, repeat in members
    ]


def _longest(chains: Sequence[_Chain]) -> dict[str, _Chain]:
    """The longest chain from where each config begins; of equals the last one."""
    longest: dict[str, _Chain] = {}
    for chain in sorted(chains, key=lambda chain: -chain.visits):
        longest.setdefault(standing(chain.start), chain)
    return longest


def _taken(spec: Spec, chain: _Chain) -> Iterator[tuple[str, tuple[Visit, ...]]]:
    """The chain's steps by where they begin, with their states and rows in the run's own storage."""
    at = chain.start
    for step in chain.steps:
        own, there = _own(spec.storage, chain, step)
        while own:
            ends = [number for number, visit in enumerate(own[:_AT_ONCE], start=1) if visit.output in there]
            part, own = own[: max(ends, default=_AT_ONCE)], own[max(ends, default=_AT_ONCE) :]
            yield standing(at), part
            for visit in part:
                at = advance(at, visit, spec.plan)


def _folder(chain: _Chain) -> str:
    """The name of the folders of checkpoints and logs that are taken over."""
    return f"{FOLDER}{chain.run.run}-{chain.start.id}"


def _own(
    storage: str, chain: _Chain, step: Sequence[Visit]
) -> tuple[tuple[Visit, ...], Collection[CheckpointRef]]:
    """The visits as the new run has them. The state with which the step ends, and each epoch's end that is
    there, are linked, and returned, too; the others were deleted before, as in any run."""
    from cerebro_elastic.hop import checkpoint

    run, name = chain.run.run, _folder(chain)
    there: set[CheckpointRef] = set()

    def ours(url: str) -> str:
        return f"{storage}/checkpoints/{name}/{PurePosixPath(url).name}"

    def ref(of: CheckpointRef | None) -> CheckpointRef | None:
        return None if of is None else replace(of, url=ours(of.url))

    visits = []
    for number, visit in enumerate(step):
        last = number == len(step) - 1
        if last:
            there.add(checkpoint.adopt(visit.output, ours(visit.output.url)))
        elif step[number + 1].unit.epoch > visit.unit.epoch:
            with suppress(CheckpointError):
                there.add(checkpoint.adopt(visit.output, ours(visit.output.url)))
        log = visit.log
        if log is not None:
            log = f"{storage}/logs/{name}/{PurePosixPath(log).name}"
            assert visit.log is not None
            with translated(CheckpointError, f"cannot copy {visit.log}"):
                files.copy(locate(visit.log), locate(log))
        output = replace(visit.output, url=ours(visit.output.url))
        visits.append(
            replace(
                visit, input=ref(visit.input), output=output, log=log, attempt=0, reused=visit.reused or run
            )
        )
    return tuple(visits), there


def _sentence(reusable: Reusable, first: Sequence[Config] | None) -> str:
    """What is taken over of the ``first`` configs, for people who start the run; else why nothing is, of the
    run that differs least."""
    if runs := list(dict.fromkeys(visits[0].reused for visits in reusable.steps.values())):
        of = f"{'run' if len(runs) == 1 else 'runs'} {some_of(runs, 3)} left them"
        if first is None:
            return f"configs that were trained before begin where {of}"
        known = {values_digest(config.hparams): False for config in first}
        for config in first:
            known[values_digest(config.hparams)] |= standing(config) in reusable.steps
        return f"{sum(known.values())} of {counted(len(known), 'config')} begin where {of}"
    if not reusable.why_not:
        return "nothing is taken over: no earlier run here has trained these configs"
    nearest, reasons = reusable.nearest()
    return f"nothing is taken over from earlier runs; not from run {nearest}: {'; '.join(reasons[:3])}"


def _offer(spec: Spec, recipe: Recipe, first: Sequence[Config] | None, longest: Mapping[str, _Chain]) -> str:
    """What could be taken over, for people who start the run."""
    if not longest:
        return ""
    units = sum(
        len({visit.unit for step in chain.steps for visit in step if visit.unit.phase is Phase.TRAIN})
        for chain in longest.values()
    )
    runs = list(dict.fromkeys(chain.run.run for chain in longest.values()))
    of = ""
    if first is not None and recipe.repeats is None:
        of = f" of {len(first) * spec.plan.epochs * spec.plan.trained}"
    stand = f"{units}{of} units stand in the {'run' if len(runs) == 1 else 'runs'} {some_of(runs, 3)}"
    way = option("reuse", "reuse=True")
    unless = "if no file or variable that your code reads has changed"
    return f"{stand} {unless}: {way} takes them, and this run trains all"
