"""The features of a frozen prefix: what the first layers of a model, which are not trained, make of rows.

They are computed for a partition as a whole: in chunks of its rows in their stored order. So a row has the
same features, bit for bit, in every config, epoch and batch, whoever has computed them; whether they were
kept is a matter of time alone. They are kept like opened rows (``data/reading/made_once.py``): the ranks of a
host divide the chunks among them, and what was not kept, or is damaged, is computed again.

The user's code stays as it is. Within a unit the prefix, when it is called with the rows of the batch,
returns their features. All that this rests on is observed: which rows those are (by sums of what the prefix
gets), that a row's features depend on that row alone, and that to compute them draws and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.reading.batches import BatchMaker, BatchRows, in_worker_processes
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import Batches, DataUse, Made
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.row_sums import Sums
from cerebro_elastic.data.reading.shared_records import MISSING, Records
from cerebro_elastic.errors import TaskError
from cerebro_elastic.generators import seeded
from cerebro_elastic.training import prefix_content as content
from cerebro_elastic.training.prefix_content import Path, Tree
from cerebro_elastic.training.task import UnitJob

CHUNK = 64
"""The number of rows that the prefix gets at once. Kept features, and results, depend on it."""
_SAMPLES = (1, 3, 7)
"""How many rows of a chunk, at random places, are computed once more, without the others."""
_AGAIN = 0.1
"""For which share of the chunks that is done, behind the first one."""
_CONSTANTS = (type(None), bool, int, float, str)


class _Chunk(NamedTuple):
    """The features of a chunk's rows."""

    sums: Sequence[Sums]
    """The sums of the rows that the prefix got, for each of the tensors of a batch that it takes."""
    features: Tree


class _Few(NamedTuple):
    """Some rows of a chunk."""

    batch: Any
    rows: Index
    """Where they are in the batch."""
    places: Index
    """Where they are in the chunk."""


@dataclass(frozen=True, slots=True)
class _Features:
    """The features of a partition."""

    sums: Sequence[Sums]
    """The sums of all rows, for each of the tensors of a batch that the prefix takes."""
    chunks: Sequence[Tree]
    """Mapped where they were kept, so they are not put together."""

    def of(self, rows: Index, device: torch.device) -> Tree:
        """The features of these rows."""
        places, inside = (each.tolist() for each in np.divmod(rows, CHUNK))
        trees = [self.chunks[place] for place in places]
        stacked = iter(
            [
                torch.stack([tensor[row] for tensor, row in zip(tensors, inside, strict=True)]).to(device)
                for tensors in zip(*map(content.leaves_of, trees), strict=True)
            ]
        )
        return content.mapped(trees[0], lambda value: None if value is None else next(stacked))


@dataclass(frozen=True, slots=True)
class _Now:
    """The batch that is trained or validated now."""

    job: UnitJob
    partition: Partition
    loader: LoaderSettings
    rows: Index
    """Which rows of the partition the batch has."""
    batch: Any


@dataclass(frozen=True, slots=True)
class _Column:
    """An argument of the prefix: a tensor of the batch, as it is but for its device, its type and how each
    row is shaped."""

    path: Path
    device: torch.device = field(repr=False)
    dtype: torch.dtype
    shape: tuple[int, ...]
    """The shape of a row."""

    def of(self, batch: Any) -> Tensor:
        """The argument in a batch."""
        column = content.leaf(batch, self.path)
        return column.to(self.device, self.dtype).reshape(len(column), *self.shape)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the prefix for the batch that is trained or validated now."""

    prefix: nn.Module
    takes: Tree
    """Its arguments, with ``_Column`` in place of tensors."""
    paths: Sequence[Path]
    """The tensors of a batch that it takes."""
    now: _Now

    def sums(self, batch: Any) -> list[Sums]:
        """The sums of the rows that the prefix takes of a batch."""
        return [content.sums(content.leaf(batch, path)) for path in self.paths]


class FrozenPrefix:
    """The prefix of a model within one unit, or one ordinary fit.

    Args:
        path: The name of the module in the model.
        prepared: What the task makes of a batch of the loader before the model gets it.
        depends_on: What that depends on besides the recipe, such as a config's hyper-parameters.
    """

    def __init__(
        self, path: str, prepared: Callable[[Any], Any] = lambda batch: batch, depends_on: object = ()
    ) -> None:
        self._path = path
        self._name = content.named(path)
        self._prepared = prepared
        self._depends_on = depends_on
        self._now: _Now | None = None
        self._prefix: nn.Module | None = None
        self._model: Callable[[], nn.Module]
        self._computing = self._called = self._checked = False
        self._taken: dict[str, _Features] = {}
        """The features of the partition of the present batch."""
        self._forget()

    def _forget(self) -> None:
        self._stamp: object = None
        self._tensors: tuple[str, ...] | None = None
        """The digests of the prefix's tensors, if features were taken by them."""
        self._forms: dict[tuple[bool, ...], str] = {}
        """What else the prefix is, by the modes of its modules."""

    @contextmanager
    def attached(self, model: Callable[[], nn.Module]) -> Iterator[None]:
        """Within the block the prefix of the ``model`` returns features.

        Raises ``TaskError`` if it was changed unseen, or never called.
        """
        _watch_calls()
        self._model = model
        _active.append(self)
        try:
            yield
        finally:
            _active.remove(self)
        self._end_unit()

    def next(
        self, job: UnitJob, partition: Partition, loader: LoaderSettings, rows: Index, batch: Any
    ) -> None:
        """The next batch has these ``rows`` of the partition."""
        if loader.augment:
            raise TaskError(
                f"{self._name} needs rows that are the same in every epoch, and data.augment changes them: "
                "remove one of the two"
            )
        self._check_called()
        if self._now is not None and self._now.job is not job:
            self._end_unit()
        if self._now is None or self._now.partition is not partition:
            self._taken.clear()
        self._prefix = content.part_of(self._model(), self._path)
        self._now = _Now(job, partition, loader, rows, batch)

    def change(self, batch: Any) -> None:
        """The task has made this of the present batch."""
        assert self._now is not None
        self._now = replace(self._now, batch=batch)

    def rest(self) -> None:
        """The next batches are of no partition: the prefix computes what it makes of them each time."""
        self._now = None

    def is_for(self, module: nn.Module) -> bool:
        """Whether a call of the module is one of the prefix from outside."""
        return module is self._prefix and not self._computing

    def output(self, prefix: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a call of the prefix returns."""
        now = self._now
        self._called = True
        # The batches of a profile are too few to compute a partition for them.
        if now is None or now.job.unit.phase is Phase.PROFILE or self._is_trained(prefix, now.job):
            return _plain_call(prefix, *args, **kwargs)
        self._look(prefix)
        takes = content.mapped((args, kwargs), partial(self._argument, now=now))
        paths = list(dict.fromkeys(column.path for column in content.leaves_of(takes, _Column)))
        if not paths:
            self._refuse_input(args or kwargs)
        call = _Call(prefix, takes, paths, now)
        key = self._key(call)
        if key not in self._taken:
            self._taken[key] = self._features(call, key)
        features = self._taken[key]
        self._check_sums(call, now.batch, [sums[now.rows] for sums in features.sums])
        return features.of(now.rows, next(content.leaves_of((args, kwargs))).device)

    def _is_trained(self, prefix: nn.Module, job: UnitJob) -> bool:
        """Whether the prefix is not frozen any more: it then computes what it makes of each batch."""
        trained = [name for name, parameter in prefix.named_parameters() if parameter.requires_grad]
        if trained and job.unit.epoch == 0 and job.begins_epoch and not self._taken:
            raise TaskError(
                f"{self._name} is not frozen: {trained[0]!r} is trained, and {len(trained) - 1} others: call "
                "requires_grad_(False) on it where the model is made, or remove frozen_prefix"
            )
        if trained:
            self._forget()
        return bool(trained)

    def _look(self, prefix: nn.Module) -> None:
        """Digest the prefix, as far as it may have changed."""
        if (stamp := content.stamp(prefix)) != self._stamp:
            digests = content.digests(prefix)
            if self._tensors not in (None, digests):
                self._refuse_change()
            self._stamp, self._tensors = stamp, digests
        if (modes := content.modes(prefix)) not in self._forms:
            content.refuse_chance(self._path, prefix)
            self._forms[modes] = content.form(self._path, prefix)

    def _end_unit(self) -> None:
        """Raise ``TaskError`` if the prefix was changed unseen, or never called."""
        self._check_called()
        if self._prefix is not None and self._tensors is not None:
            expected = self._forms.get(content.modes(self._prefix))
            same = expected is None or content.form(self._path, self._prefix) == expected
            if not same or content.digests(self._prefix) != self._tensors:
                self._refuse_change()
        self._forget()

    def _check_called(self) -> None:
        if self._now is not None and not self._called and self._now.job.unit.phase is not Phase.PROFILE:
            raise TaskError(
                f"{self._name} was not called for a batch before the next one was taken: name the module "
                "that the model calls first, as `self.encoder(x)` does, or remove frozen_prefix "
                "(torch.compile hides the calls in a model: compile what is behind the prefix)"
            )

    def _key(self, call: _Call) -> str:
        """All that the features depend on, besides the run with its code."""
        (device, *_) = {column.device.type for column in content.leaves_of(call.takes, _Column)}
        precision = torch.is_autocast_enabled(device) and str(torch.get_autocast_dtype(device))
        # Attention takes other ways with and without gradients.
        numbers = (str(torch.get_default_dtype()), torch.get_float32_matmul_precision())
        manner = (device, precision, torch.is_grad_enabled(), *numbers)
        partition, loader = call.now.partition, call.now.loader
        data = (partition.name, partition.index, loader.data_args, self._depends_on)
        what = (self._forms[content.modes(call.prefix)], self._tensors)
        return repr(("features", CHUNK, *data, call.takes, *what, manner))

    def _features(self, call: _Call, key: str) -> _Features:
        """The features of the partition, taken or computed."""
        job, self._checked = call.now.job, False
        chunks: list[_Chunk] = []
        with ExitStack() as in_use:
            count = -(-call.now.partition.rows // CHUNK)
            shared = None if job.made is None else in_use.enter_context(job.made.shared(key, count))
            for chunk in Batches(range(count), partial(self._computed, call), shared, DataUse()):
                job.beat()
                chunks.append(chunk)
        of_paths = zip(*(chunk.sums for chunk in chunks), strict=True)
        return _Features([np.concatenate(sums) for sums in of_paths], [chunk.features for chunk in chunks])

    def _computed(
        self, call: _Call, numbers: Iterator[int], records: Records | None
    ) -> Generator[Made, None, None]:
        """The chunks of these numbers."""
        begun: deque[int] = deque()

        def begin() -> Iterator[int]:
            for number in numbers:
                begun.append(number)
                yield number

        for loaded in _loaded(call, begin()):
            number = begun.popleft()
            with seeded(0):  # whatever draws here leaves the generators as they were
                batch = self._prepared(loaded)
                sums = call.sums(batch)
                chance = np.random.default_rng((call.now.partition.index, number))
                is_tested = not self._checked or chance.random() < _AGAIN
                few = list(self._few(call, number, batch, sums, chance)) if is_tested else []
                before = content.state(self._path, call.prefix) if few else None
                chunk = _Chunk(sums, self._evaluated(call, batch))
                if few:
                    self._check_input(call, batch, sums)
                    self._check_evaluation(call, few, chunk, before)
                    self._checked = True
            kept = records is not None and records.put(number, chunk)
            yield Made(MISSING if kept else chunk, kept)

    def _evaluated(self, call: _Call, batch: Any, rows: Index | slice = slice(None)) -> Tree:
        """What the prefix makes of these rows of a batch, on the CPU."""

        def rows_of(value: Any) -> Any:
            return value.of(batch)[rows] if isinstance(value, _Column) else value

        try:
            args, kwargs = content.mapped(call.takes, rows_of)
        except (LookupError, RuntimeError, AttributeError, TypeError):  # a batch of another form
            self._refuse_rows()
        self._computing = True
        try:
            output = _plain_call(call.prefix, *args, **kwargs)
        finally:
            self._computing = False
        count = len(next(content.leaves_of((args, kwargs))))
        return content.mapped(output, partial(self._feature, rows=count))

    def _feature(self, value: Any, rows: int) -> Any:
        if value is None:
            return None
        if not isinstance(value, Tensor) or value.ndim == 0 or len(value) != rows:
            shown = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise TaskError(
                f"{self._name} has made {shown} of {rows} rows: it may return a tensor with as many rows, or "
                "tuples, lists and dicts of such tensors (a decoder of transformers with `use_cache=False`)"
            )
        self._refuse_gradient(value)
        return value.detach().cpu().contiguous()

    def _few(
        self, call: _Call, number: int, batch: Any, sums: Sequence[Sums], chance: np.random.Generator
    ) -> Iterator[_Few]:
        """Some rows of a chunk without the others. Raises ``TaskError`` if alone they are others."""
        rows = _rows_of(call, number)
        for size in _SAMPLES:
            places = chance.choice(len(rows), min(size, len(rows)), replace=False)
            if call.now.loader.workers:
                yield _Few(batch, places, places)
                continue
            few = self._prepared(_maker(call).make(BatchRows(rows[places], rows[places])))
            self._check_sums(call, few, [each[places] for each in sums])
            yield _Few(few, np.arange(len(places)), places)

    def _check_input(self, call: _Call, batch: Any, before: Sequence[Sums]) -> None:
        """Raise ``TaskError`` if computing features of a ``batch`` has written to it."""
        if not all(map(np.array_equal, call.sums(batch), before)):
            raise TaskError(
                f"{self._name} writes to its input, which the model would not see where features are kept: "
                "let it make a copy, as by `x * 2` instead of `x.mul_(2)`"
            )

    def _check_evaluation(self, call: _Call, few: Sequence[_Few], chunk: _Chunk, before: object) -> None:
        """Raise ``TaskError`` if to compute a chunk has drawn or changed something, or if ``few`` of its rows
        have other features without the others."""
        alone = [self._evaluated(call, each.batch, each.rows) for each in few]
        if content.state(self._path, call.prefix) != before:
            raise TaskError(
                f"{self._name} draws random numbers, or keeps something from call to call (an attribute, a "
                "buffer, a global variable): its features cannot be kept; put that outside of the prefix"
            )
        pairs = [
            (beside[each.places], feature)
            for each, features in zip(few, alone, strict=True)
            for beside, feature in zip(
                content.leaves_of(chunk.features), content.leaves_of(features), strict=True
            )
        ]
        if not all(content.close(beside, feature) for beside, feature in pairs):
            raise TaskError(
                f"{self._name} makes other features of a row beside other rows: it may not compute across "
                "the rows of a batch"
            )

    def _check_sums(self, call: _Call, batch: Any, expected: Sequence[Sums]) -> None:
        """Raise ``TaskError`` unless the rows that the prefix takes of a batch have these sums."""
        if not all(map(np.array_equal, call.sums(batch), expected)):
            self._refuse_rows()

    def _argument(self, value: Any, now: _Now) -> Any:
        """``_Column`` in place of a tensor that the prefix gets."""
        if isinstance(value, Tensor):
            self._refuse_gradient(value)
            for path, column in content.leaves(now.batch):
                if column.ndim and len(column) == len(now.rows) and content.is_same(column, value):
                    return _Column(path, value.device, value.dtype, tuple(value.shape[1:]))
        if not isinstance(value, _CONSTANTS):
            self._refuse_input(value)
        return value

    def _refuse_gradient(self, value: Tensor) -> None:
        if value.requires_grad:
            raise TaskError(
                f"{self._name} is not frozen: its input, or a parameter outside of it, takes a gradient: "
                "name a prefix that does not use what is trained, or remove frozen_prefix"
            )

    def _refuse_input(self, value: object) -> NoReturn:
        shown = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise TaskError(
            f"{self._name} was called with {shown}, which is not a column of the batch as data gives it: let "
            "the model call it first, with all rows of the batch; put what comes before it into the prefix, "
            "or into data.transform"
        )

    def _refuse_rows(self) -> NoReturn:
        raise TaskError(
            f"{self._name} needs rows that are the same in every batch, and these have changed: a transform, "
            "a collate function or a dataset draws at random, or what it makes of a row depends on the batch "
            "(as padding to the longest row does): do that behind the prefix, or remove frozen_prefix"
        )

    def _refuse_change(self) -> NoReturn:
        raise TaskError(
            f"{self._name} has changed within a unit, though no parameter of it is trained: a callback or "
            "the module itself writes to its tensors or attributes; do that at the beginning of an epoch, or "
            "remove frozen_prefix"
        )


def _rows_of(call: _Call, number: int) -> Index:
    """The rows of a chunk."""
    return np.arange(number * CHUNK, min((number + 1) * CHUNK, call.now.partition.rows))


def _maker(call: _Call) -> BatchMaker:
    """What makes batches of the partition's rows."""
    return BatchMaker(call.now.partition, replace(call.now.loader, batch_size=CHUNK, pin_memory=False))


def _loaded(call: _Call, numbers: Iterator[int]) -> Iterator[Any]:
    """The rows of chunks as batches of the loader."""
    maker = _maker(call)

    def rows_of(number: int) -> BatchRows:
        rows = _rows_of(call, number)
        return BatchRows(rows, rows)

    if maker.loader.workers:
        for made in in_worker_processes(
            maker.make, rows_of, (0,), maker.loader, maker.generators, numbers, None
        ):
            yield made.batch
        return
    for number in numbers:
        with seeded(0):
            batch = maker.make(rows_of(number))
        yield batch


_active: list[FrozenPrefix] = []
"""The prefix of the unit that is trained in this process."""
_plain_call: Callable[..., Any] = nn.Module.__call__


def _watch_calls() -> None:
    """From now on active prefixes see the calls of modules in this process. On the class of all modules,
    since what is set on a module itself is state, and hops; once, since each change of that class takes
    time."""
    if nn.Module.__call__ is not _call:
        nn.Module.__call__ = _call  # type: ignore[method-assign]


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    for prefix in () if torch.compiler.is_compiling() else _active:
        if prefix.is_for(module):
            return prefix.output(module, args, kwargs)
    return _plain_call(module, *args, **kwargs)


_call.hooked = True  # type: ignore[attr-defined] # so ``library_patches`` leaves it
