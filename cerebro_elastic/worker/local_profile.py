"""Trials on this machine, without a run: what a plan is made from.

As in a run (``profiles.py``), a few batches tell how a choice does for a config. Besides, the state that they
leave is saved and loaded once, as a hop does, and removed.
"""

from __future__ import annotations

import importlib
import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Self

import torch

from cerebro_elastic import checkpoint
from cerebro_elastic.clock import SystemClock
from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.errors import DataError, GroupBroken, StorageError
from cerebro_elastic.parallel.group import ranks, sweep
from cerebro_elastic.parallel.rank_pool import RankFailed, Ranks
from cerebro_elastic.training.measure import Measure
from cerebro_elastic.training.task import Stopped, UnitJob
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker import memory
from cerebro_elastic.worker.attempts import QUICK
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.group_rendezvous import needs_group
from cerebro_elastic.worker.profiles import refusal_of, too_much, try_out
from cerebro_elastic.worker.saving import part_of, save, save_part

STEADY = 1.0
"""Seconds for which a trial trains, if the unit lasts so long: five batches of milliseconds tell little."""


class LocalProfile:
    """Tries configs of ``spec``, whose partitions come through the cache at ``cache``, and whose states are
    saved under ``scratch``, a URL; ``beside``: so many units at once where they share this machine's cores.
    Rank processes are started when they are needed, and end with the context."""

    def __init__(self, spec: Spec, cache: Path, scratch: str, beside: int = 1) -> None:
        self._spec = spec
        self._beside = beside
        self._told = (encode(spec), str(cache), scratch)
        self._stack = ExitStack()
        self._team: Ranks | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, config: Config, strategy: Strategy) -> Measure:
        """The trial of ``strategy`` for the config's next unit. What the user's code raises is a refusal, too;
        what is wrong with the data is raised."""
        if why := _beyond(strategy):
            return Measure(config.id, strategy, refusal=why)
        asked = (encode(config), encode(strategy))
        if not needs_group(strategy):
            return decode(try_here(*self._told, *asked), Measure)
        members = range(strategy.ranks)
        try:
            told, *_ = self._ranks().together(try_here, *self._told, *asked, members=members)
        except RankFailed as failed:
            return Measure(config.id, strategy, refusal=f"its trial failed: {str(failed).splitlines()[-1]}")
        return decode(told, Measure)

    def side_by_side(self, config: Config, strategy: Strategy) -> Measure | None:
        """The same trial of a choice of one rank, in as many processes at once as cores are shared by;
        ``None`` if there is nothing to share, or if so many fail where one alone did not."""
        if self._beside == 1 or needs_group(strategy) or torch.cuda.is_available():
            return None
        ranks, asked = self._ranks(), (encode(config), encode(strategy))
        try:
            for member in range(self._beside):
                ranks.ask(member, try_here, *self._told, *asked)
            each = [decode(ranks.answer(member), Measure) for member in range(self._beside)]
        except RankFailed:  # the others' answers would be taken for those to what is asked next
            self._stack.close()
            self._team = None
            return None
        if any(told.refusal is not None for told in each):
            return None
        return replace(
            each[0],
            batch=fmean(told.batch for told in each),
            fixed=fmean(told.fixed for told in each),
            hop=None if each[0].hop is None else fmean(told.hop or 0.0 for told in each),
            saving=fmean(told.saving for told in each),
            beside=self._beside,
        )

    def _ranks(self) -> Ranks:
        if self._team is None:
            most = max(c.ranks for c in self._spec.plan.strategies if not _beyond(c))
            gpus = torch.cuda.is_available()
            self._team = self._stack.enter_context(Ranks(max(most, self._beside), gpus=gpus))
        return self._team


def _beyond(strategy: Strategy) -> str | None:
    """Why this machine cannot try the choice, if it cannot: it has not as many devices."""
    gpus = torch.cuda.device_count()
    there, what = (gpus, "GPUs") if gpus else (os.cpu_count() or 1, "cores")
    if strategy.ranks <= there:
        return None
    return f"was not tried: it takes {strategy.ranks} ranks, and this machine has {there} {what}"


_benches: dict[str, UnitRunner] = {}
"""Of this process."""


def try_here(spec: str, cache: str, scratch: str, config: str, strategy: str) -> str:
    """On each of the choice's ranks; what the one that leads returns is of use."""
    if spec not in _benches:
        importlib.import_module("torch._dynamo")  # as the first optimizer would, in the first trial
        device = f"cuda:{ranks()[0]}" if torch.cuda.is_available() else "cpu"
        _benches[spec] = UnitRunner(decode(spec, Spec), Path(cache), device)
        _benches[spec].use_threads()
    bench, tried, how = _benches[spec], decode(config, Config), decode(strategy, Strategy)
    unit = next_units(tried, decode(spec, Spec).plan)[0]
    try:
        return encode(_measured(bench, tried, unit, how, scratch))
    except (DataError, StorageError, GroupBroken):
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        attempt = Attempt(unit, "here", 0, 0, strategy=how)
        failure = failure_of(attempt, "here", error, Path(decode(spec, Spec).root))
        why = refusal_of(attempt, error) or f"its trial failed: {failure.story}"
        return encode(Measure(tried.id, how, refusal=why))
    finally:
        if not needs_group(how):
            sweep()


def _measured(bench: UnitRunner, config: Config, unit: Unit, strategy: Strategy, scratch: str) -> Measure:
    clock, limit = SystemClock(), memory.limit_of(os.environ)
    meter = memory.Meter(torch.device(bench.device))
    tried = try_out(bench, _job(bench, config, unit, strategy), clock, meter, limit, STEADY)
    if why := too_much(tried.bytes, limit):
        return Measure(config.id, strategy, refusal=why)
    # The first unit has paid for what is done once.
    job = replace(_job(bench, config, unit, strategy), stop=lambda _done: True)
    began = clock.now()
    with suppress(Stopped):
        bench.perform(job)
    fixed = max(0.0, clock.now() - began - tried.per_batch)
    told = Measure(config.id, strategy, tried.per_batch, tried.bytes, fixed=fixed)
    if tried.state is None:
        return told
    began, part = clock.now(), part_of(strategy, ranks()[0])
    url = f"{scratch}/{config.id}-{strategy.parallelism}-{strategy.ranks}"
    if not needs_group(strategy):  # there may be others beside it
        url += f"-{os.getpid()}"
    parts = save_part(tried.state, url, part)
    if ranks()[0] > 0:
        return told
    ref = save(tried.state, url, parts)
    saved = clock.now()
    checkpoint.load(ref, part)
    loaded = clock.now()
    checkpoint.remove(ref)
    # Ranks that each save their part, and those of several nodes, do nothing else before it is saved.
    waits = parts is not None or strategy.nodes > 1
    behind = 0.0 if waits else max(0.0, saved - began - QUICK)
    return replace(told, hop=loaded - began - behind, saving=behind, state=ref.bytes)


def _job(bench: UnitRunner, config: Config, unit: Unit, strategy: Strategy) -> UnitJob:
    """A state is given away with its job."""
    state = checkpoint.load(config.head) if config.head else None
    return bench.job(config, unit, state, strategy=strategy)
