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

import hashlib
import io
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from cerebro_elastic.checkpoint.bases import bytes_of
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.reading.batches import BatchMaker, BatchRows, in_worker_processes
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import Batches, DataUse, Made
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.records import Records
from cerebro_elastic.data.reading.row_sums import Sums, row_sums
from cerebro_elastic.data.user_state import kept_state, seeded
from cerebro_elastic.errors import TaskError, did_you_mean
from cerebro_elastic.registry import is_users
from cerebro_elastic.system.torch_internals import buffers_of, normalizes, version_of
from cerebro_elastic.training._torch_internals import CALL_HOOK_TABLES, hooks_of
from cerebro_elastic.training.task import UnitJob

CHUNK = 64
"""The number of rows that the prefix gets at once. Kept features, and results, depend on it."""
_SAMPLE = 2
"""The number of rows that are computed once more, without the others of their chunk."""
_DIFFERENCE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""By how much, relative to the largest, the features of a row may depend on the number of rows beside it;
other types may by more."""
_LARGEST_DIFFERENCE = 3e-2
_NO_FORM = "unknown"
_CONSTANTS = (type(None), bool, int, float, str)
_WHOLE = ("single", "ddp")
"""The parallelisms under which a rank has the prefix as the user has made it."""
_DROPOUTS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip

Tree: TypeAlias = Any
"""A tensor, or tuples, lists and dicts of tensors."""
Path: TypeAlias = tuple[Any, ...]
"""Where in a batch a tensor is."""


class _Chunk(NamedTuple):
    """The features of a chunk's rows."""

    sums: Sequence[Sums]
    """The sums of the rows that the prefix got, for each of the tensors of a batch that it takes."""
    features: Tree


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
                torch.stack([leaf[row] for leaf, row in zip(leaves, inside, strict=True)]).to(device)
                for leaves in zip(*map(_leaves_of, trees), strict=True)
            ]
        )
        return _mapped(trees[0], lambda value: None if value is None else next(stacked))


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
class _Rows:
    """An argument of the prefix: a tensor of the batch, as it is but for its device, its type and how each
    row is shaped."""

    path: Path
    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...]
    """The shape of a row."""

    def of(self, batch: Any) -> Tensor:
        """The argument in a batch."""
        leaf = _leaf(batch, self.path)
        return leaf.to(self.device, self.dtype).reshape(len(leaf), *self.shape)


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
        self._prepared = prepared
        self._depends_on = depends_on
        self._now: _Now | None = None
        self._prefix: nn.Module | None = None
        self._model: Callable[[], nn.Module]
        self._computing = self._called = self._checked = False
        self._stamp: object = None
        self._tensors: tuple[str, ...] | None = None
        """The digests of the prefix's tensors, if features were taken by them."""
        self._forms: dict[tuple[bool, ...], str | None] = {}
        """What else the prefix is, by the modes of its parts."""
        self._taken: dict[str, _Features] = {}
        """The features of the partition of the present batch."""

    @contextmanager
    def attached(self, model: Callable[[], nn.Module]) -> Iterator[None]:
        """Within the block, which is the unit, the prefix of the ``model`` returns features.

        Raises ``TaskError`` if it was changed unseen, or never called.
        """
        _watch_calls()
        self._model = model
        _active.append(self)
        try:
            yield
        finally:
            _active.remove(self)
        self._check_called()
        if self._prefix is not None and self._tensors is not None:
            form = self._forms.get(_modes(self._prefix), _NO_FORM)
            if _digests(self._prefix) != self._tensors or form not in (_NO_FORM, _form(self._prefix)):
                self._refuse_change()

    def is_for(self, module: nn.Module) -> bool:
        """Whether a call of the module is one of the prefix from outside."""
        return module is self._prefix and not self._computing

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
        if self._now is None or (self._now.partition is not partition):
            self._taken.clear()
        self._prefix = part_of(self._model(), self._path)
        self._now = _Now(job, partition, loader, rows, batch)

    def change(self, batch: Any) -> None:
        """The task has made this of the present batch."""
        assert self._now is not None
        self._now = replace(self._now, batch=batch)

    def rest(self) -> None:
        """The next batches are of no partition: the prefix computes what it makes of them each time."""
        self._now = None

    @property
    def _name(self) -> str:
        return f"task.frozen_prefix {self._path!r}"

    def _check_called(self) -> None:
        if self._now is not None and not self._called and self._now.job.unit.phase is not Phase.PROFILE:
            raise TaskError(
                f"{self._name} was not called for a batch before the next one was taken: name the module "
                "that the model calls first, as `self.encoder(x)` does, or remove frozen_prefix"
            )

    def output(self, prefix: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a call of the prefix returns."""
        now = self._now
        self._called = True
        # The batches of a profile are too few to compute a partition for them.
        if now is None or now.job.unit.phase is Phase.PROFILE or self._is_trained(prefix, now.job):
            return _plain_call(prefix, *args, **kwargs)
        self._look(prefix)
        takes = _mapped((args, kwargs), partial(self._argument, now=now))
        paths = list(dict.fromkeys(each.path for each in _leaves_of(takes, _Rows)))
        if not paths:
            self._refuse_input(args or kwargs)
        key = self._key(prefix, takes, now)
        if key not in self._taken:
            self._taken[key] = self._features(prefix, takes, paths, now, key)
        features = self._taken[key]
        for path, sums in zip(paths, features.sums, strict=True):
            if not np.array_equal(_sums(_leaf(now.batch, path)), sums[now.rows]):
                self._refuse_rows()
        return features.of(now.rows, next(_leaves_of((args, kwargs))).device)

    def _is_trained(self, prefix: nn.Module, job: UnitJob) -> bool:
        """Whether the prefix is not frozen any more: it then computes what it makes of each batch."""
        trained = [name for name, parameter in prefix.named_parameters() if parameter.requires_grad]
        if trained and job.unit.epoch == 0 and job.begins_epoch and not self._taken:
            raise TaskError(
                f"{self._name} is not frozen: {trained[0]!r} is trained, and {len(trained) - 1} others: call "
                "requires_grad_(False) on it where the model is made, or remove frozen_prefix"
            )
        if trained:
            self._stamp = self._tensors = None
            self._forms.clear()
        return bool(trained)

    def _look(self, prefix: nn.Module) -> None:
        """Digest the prefix, as far as it may have changed."""
        stamp = [(id(tensor), tensor.data_ptr(), version_of(tensor)) for tensor in _tensors(prefix)]
        if stamp != self._stamp:
            digests = _digests(prefix)
            if self._tensors not in (None, digests):
                self._refuse_change()
            self._stamp, self._tensors = stamp, digests
        if (modes := _modes(prefix)) not in self._forms:
            refuse_chance(self._name, prefix)
            self._forms[modes] = _form(prefix)

    def _key(self, prefix: nn.Module, takes: Tree, now: _Now) -> str:
        """All that the features depend on, besides the run with its code."""
        (device, *_) = {each.device.type for each in _leaves_of(takes, _Rows)}
        precision = torch.is_autocast_enabled(device) and str(torch.get_autocast_dtype(device))
        form = self._forms[_modes(prefix)] or (_modes(prefix), sorted(now.job.hparams.items()))
        # Attention takes other ways with and without gradients.
        manner = (precision, torch.is_grad_enabled(), str(torch.get_default_dtype()))
        data = (now.partition.name, now.partition.index, now.loader.data_args, self._depends_on)
        return repr(("features", CHUNK, *data, takes, form, self._tensors, manner))

    def _features(
        self, prefix: nn.Module, takes: Tree, paths: Sequence[Path], now: _Now, key: str
    ) -> _Features:
        """The features of the partition, taken or computed."""
        count, self._checked = -(-now.partition.rows // CHUNK), False
        chunks: list[_Chunk] = []
        with ExitStack() as in_use:
            made = now.job.made
            shared = None if made is None else in_use.enter_context(made.shared(key, count))
            compute = partial(self._computed, prefix, takes, paths, now)
            for chunk in Batches(range(count), compute, shared, DataUse()):
                now.job.beat()
                chunks.append(chunk)
        sums = [
            np.concatenate(of_chunks) for of_chunks in zip(*(chunk.sums for chunk in chunks), strict=True)
        ]
        return _Features(sums, [chunk.features for chunk in chunks])

    def _computed(
        self,
        prefix: nn.Module,
        takes: Tree,
        paths: Sequence[Path],
        now: _Now,
        numbers: Iterator[int],
        records: Records | None,
    ) -> Generator[Made, None, None]:
        """The chunks of these numbers."""
        begun: deque[int] = deque()

        def begin() -> Iterator[int]:
            for number in numbers:
                begun.append(number)
                yield number

        for loaded in self._loaded(now, begin()):
            number = begun.popleft()
            with seeded(0):  # whatever draws here leaves the generators as they were
                batch = self._prepared(loaded)
                before = None if self._checked else _state(prefix)
                features = self._evaluated(prefix, takes, batch)
                if before is not None:
                    self._check_evaluation(prefix, takes, batch, features, before)
                    self._checked = True
            chunk = _Chunk([_sums(_leaf(batch, path)) for path in paths], features)
            kept = records is not None and records.put(number, chunk)
            yield Made(chunk, kept)

    def _loaded(self, now: _Now, numbers: Iterator[int]) -> Iterator[Any]:
        """The chunks' rows as batches of the loader."""
        loader = replace(now.loader, batch_size=CHUNK, pin_memory=False)
        maker = BatchMaker(now.partition, loader)

        def rows_of(number: int) -> BatchRows:
            rows = np.arange(number * CHUNK, min((number + 1) * CHUNK, now.partition.rows))
            return BatchRows(rows, rows)

        if loader.workers:
            for made in in_worker_processes(maker.make, rows_of, (0,), loader, numbers, None):
                yield made.batch
            return
        for number in numbers:
            with seeded(0):
                batch = maker.make(rows_of(number))
            yield batch

    def _evaluated(self, prefix: nn.Module, takes: Tree, batch: Any, rows: slice = slice(None)) -> Tree:
        """What the prefix makes of a batch, on the CPU."""

        def rows_of(value: Any) -> Any:
            return value.of(batch)[rows] if isinstance(value, _Rows) else value

        try:
            args, kwargs = _mapped(takes, rows_of)
        except (LookupError, RuntimeError, AttributeError, TypeError):  # a batch of another form
            self._refuse_rows()
        self._computing = True
        try:
            output = _plain_call(prefix, *args, **kwargs)
        finally:
            self._computing = False
        count = len(next(iter(_leaves_of((args, kwargs)))))
        return _mapped(output, partial(self._feature, rows=count))

    def _feature(self, value: Any, rows: int) -> Any:
        if value is None:
            return None
        if not isinstance(value, Tensor) or value.ndim == 0 or len(value) != rows:
            shown = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise TaskError(
                f"{self._name} has made {shown} of {rows} rows: it may return a tensor with as many rows, or "
                "tuples, lists and dicts of such tensors"
            )
        if value.requires_grad:
            raise TaskError(
                f"{self._name} is not frozen: its output has a gradient, so a parameter outside of it, or "
                "its input, is trained; name a prefix that does not use what is trained"
            )
        return value.detach().cpu().contiguous()

    def _check_evaluation(
        self, prefix: nn.Module, takes: Tree, batch: Any, features: Tree, before: object
    ) -> None:
        """Raise ``TaskError`` if to compute features has drawn or changed something, or if those of a row
        depend on other rows."""
        last = self._evaluated(prefix, takes, batch, slice(-_SAMPLE, None))
        if _state(prefix) != before:
            raise TaskError(
                f"{self._name} draws random numbers, or keeps something from call to call (an attribute, a "
                "buffer, a global variable): its features cannot be kept; put that outside of the prefix"
            )
        for feature, alone in zip(_leaves_of(features), _leaves_of(last), strict=True):
            beside = feature[-_SAMPLE:]
            if beside.shape != alone.shape or not _close(beside, alone):
                raise TaskError(
                    f"{self._name} makes other features of a row beside other rows: it may not compute "
                    "across the rows of a batch"
                )

    def _argument(self, value: Any, now: _Now) -> Any:
        """``_Rows`` in place of a tensor that the prefix gets."""
        if isinstance(value, Tensor):
            for path, leaf in _leaves(now.batch):
                if leaf.ndim and len(leaf) == len(now.rows) and _is_same(leaf, value):
                    return _Rows(path, value.device, value.dtype, tuple(value.shape[1:]))
        if not isinstance(value, _CONSTANTS):
            self._refuse_input(value)
        return value

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
            "the module itself writes to its tensors; do that at the beginning of an epoch, or remove "
            "frozen_prefix"
        )


_active: list[FrozenPrefix] = []
"""The prefix of the unit that is trained in this process."""
_plain_call: Callable[..., Any] = nn.Module.__call__


def _watch_calls() -> None:
    """From now on active prefixes see the calls of modules in this process. On the class of all modules,
    since what is set on a module itself is state, and hops; once, since each change of that class takes
    time."""
    if nn.Module.__call__ is not _call:
        nn.Module.__call__ = _call  # type: ignore[method-assign,assignment]


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    for prefix in _active:
        if prefix.is_for(module):
            return prefix.output(module, args, kwargs)
    return _plain_call(module, *args, **kwargs)


_call.hooked = True  # type: ignore[attr-defined] # so ``library_patches`` leaves it


def part_of(model: nn.Module, path: str) -> nn.Module:
    """The module of this name. Raises ``TaskError`` if there is none."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        names = [name for name, _ in model.named_modules() if name.count(".") <= path.count(".") and name]
        raise TaskError(
            f"task.frozen_prefix {path!r}: {type(model).__name__} has no such module; "
            f"{did_you_mean(path, names)}"
        ) from None


def refuse_chance(name: str, prefix: nn.Module) -> None:
    """Raise ``TaskError`` if a module of the prefix depends on chance or on the batch, or has a hook."""
    for path, part in prefix.named_modules():
        shown = f"{name}: {path or 'it'} ({type(part).__name__})"
        if any(hooks_of(part, table) for table in CALL_HOOK_TABLES):
            raise TaskError(
                f"{shown} has a hook, which would not run where features are kept: put it on a module behind "
                "the prefix"
            )
        rate = part.p if isinstance(part, _DROPOUTS) else getattr(part, "dropout", 0)
        drops = part.training and isinstance(rate, float | int) and rate > 0
        if drops or (part.training and normalizes(part)):
            what = "drops at random" if drops else "computes across the rows of a batch"
            raise TaskError(
                f"{shown} is in training mode, and {what}: keep the prefix in eval mode, as by `def train("
                "self, mode=True): super().train(mode); self.encoder.eval(); return self` in the model"
            )


def refusal_of(path: str, strategy: Strategy) -> str | None:
    """Why ``strategy`` cannot train a model with a frozen prefix; ``None`` if it can."""
    if strategy.parallelism in _WHOLE:
        return None
    return (
        f"task.frozen_prefix {path!r} under {strategy.parallelism}, which divides the prefix's tensors: "
        f"choose {' or '.join(_WHOLE)}, or remove frozen_prefix"
    )


def _tensors(prefix: nn.Module) -> Iterator[Tensor]:
    for part in prefix.modules():
        yield from part.parameters(recurse=False)
        yield from (buffer for buffer in buffers_of(part).values() if buffer is not None)


def _digests(prefix: nn.Module) -> tuple[str, ...]:
    return tuple(_digest(tensor) for tensor in _tensors(prefix))


def _digest(tensor: Tensor) -> str:
    content = bytes_of(tensor.detach().cpu().contiguous())
    return f"{tensor.dtype}{list(tensor.shape)}{hashlib.sha256(content).hexdigest()}"


def _modes(prefix: nn.Module) -> tuple[bool, ...]:
    return tuple(part.training for part in prefix.modules())


def _form(prefix: nn.Module) -> str | None:
    """What the prefix is besides its parameters and buffers: a digest of its classes, attributes and modes.
    ``None`` if it cannot be pickled."""
    content = io.BytesIO()
    try:
        _Pickler(content, prefix).dump(prefix)
    except Exception:  # whatever the user's class does
        return None
    return hashlib.sha256(content.getvalue()).hexdigest()


class _Pickler(pickle.Pickler):
    """Writes equal values as equal bytes, whether they are one object or several. Parameters and buffers are
    digested elsewhere."""

    def __init__(self, file: io.BytesIO, prefix: nn.Module) -> None:
        super().__init__(file, protocol=5)
        self.fast = True
        self._known = {id(tensor): number for number, tensor in enumerate(_tensors(prefix))}

    def persistent_id(self, value: Any) -> object:
        if not isinstance(value, Tensor):
            return None
        return self._known.get(id(value), _digest(value))


def _state(prefix: nn.Module) -> object:
    """What computing features must leave as it is: generators, the prefix, and what the user's files keep."""
    parts = {type(part) for part in prefix.modules() if is_users(type(part))}
    devices = {tensor.device for tensor in _tensors(prefix) if tensor.device.type == "cuda"}
    of_devices = [torch.cuda.get_rng_state(device).numpy().tobytes() for device in devices]
    return of_devices, kept_state([prefix, *parts, *(part.forward for part in parts)])


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    largest = max(one.abs().max().item(), 1e-30) if one.numel() else 1.0
    allowed = _DIFFERENCE.get(one.dtype, _LARGEST_DIFFERENCE) * largest
    return torch.allclose(one.double(), other.double(), rtol=0.0, atol=allowed, equal_nan=True)


def _sums(leaf: Tensor) -> Sums:
    """A sum for each row."""
    rows = leaf.detach().cpu().contiguous().reshape(len(leaf), -1)
    return row_sums(rows.view(torch.uint8).numpy()) if rows.numel() else np.zeros(len(leaf), np.uint64)


def _is_same(leaf: Tensor, value: Tensor) -> bool:
    """Whether the value has the leaf's numbers, row by row."""
    if value is leaf:
        return True
    if value.ndim == 0 or len(value) != len(leaf) or value.numel() != leaf.numel():
        return False
    expected = leaf.to(value.device, value.dtype).contiguous().reshape(-1).view(torch.uint8)
    return torch.equal(expected, value.detach().contiguous().reshape(-1).view(torch.uint8))


def _leaves(tree: Any, kind: Any = Tensor, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of a ``kind``, and where they are."""
    if isinstance(tree, kind):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from _leaves(item, kind, (*path, key))
    elif isinstance(tree, list | tuple):
        for at, item in enumerate(tree):
            yield from _leaves(item, kind, (*path, at))


def _leaves_of(tree: Any, kind: Any = Tensor) -> Iterator[Any]:
    return (leaf for _, leaf in _leaves(tree, kind))


def _leaf(tree: Any, path: Path) -> Tensor:
    for key in path:
        tree = tree[key]
    leaf: Tensor = tree
    return leaf


def _mapped(tree: Any, act: Callable[[Any], Any]) -> Any:
    """The tree with what ``act`` makes of each leaf."""
    if isinstance(tree, Mapping):
        make: Any = type(tree)
        return make({key: _mapped(item, act) for key, item in tree.items()})
    if isinstance(tree, list | tuple):
        items = [_mapped(item, act) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return act(tree)
