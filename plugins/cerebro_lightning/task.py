"""The task adapter for LightningModules (entry point ``lightning`` of ``cerebro.tasks``)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import Zeroed, make_parallelism
from cerebro_elastic.extending.recipes import import_object, place_in
from cerebro_elastic.extending.tasks import (
    Exported,
    HParams,
    ModelValues,
    Observe,
    OrdinaryFit,
    Phase,
    Strategy,
    Takers,
    TaskState,
    UnitJob,
    UnitResult,
    UserGlobals,
    combined_arguments,
    evaluated,
    job_batches,
    named_as_test,
    select_arguments,
)
from cerebro_lightning import refusals
from cerebro_lightning.config_values import is_hydras
from cerebro_lightning.distributed import DistributedStrategy, ShardedStrategy
from cerebro_lightning.export import adapter_of, how_to_load, stock_checkpoint
from cerebro_lightning.loaders import UnitLoaders, attached, data_module, loader_of_rows, loaders_of_test_set
from cerebro_lightning.one_name import both_loaded
from cerebro_lightning.optimizers import MODEL, NamedStateStrategy
from cerebro_lightning.process import unit_process
from cerebro_lightning.section import LightningSection
from cerebro_lightning.state import load_state, with_own_attributes
from cerebro_lightning.subepoch import SubEpoch
from cerebro_lightning.tested import RowNotes, Stage, Unchanged, watches_validation
from cerebro_lightning.trainer_settings import (
    RowLogger,
    checked_callbacks,
    make_callbacks,
    make_trainer,
)
from cerebro_lightning.watched import observed, ordinary_fit

if TYPE_CHECKING:
    from cerebro_lightning.config_file import ConfigFile
    from cerebro_lightning.hydra_file import HydraFile

_CPU = torch.device("cpu")


class LightningTask:
    """Trains the ``LightningModule`` that ``section`` names, looked for in the folder ``root`` first.

    Hyper-parameters and ``section.args`` reach the constructor by name. ``batch_size`` also sets the
    size of batches, and reaches the constructor only if it takes it. Raises ``TaskError`` if the
    module, a callback or the trainer's settings cannot be used.
    """

    def __init__(self, section: LightningSection, root: Path) -> None:
        self._section = section
        self._root = root
        self._file = _config_file(section, root)
        self._make = _maker(section.module, root) if self._file is None else self._file.module
        self._name = section.module or "the file of task.config"
        self._class = _class_made_by(self._make)
        self._files = UserGlobals([self._make, *self._class.__mro__], root)
        self._takers = Takers({self._make.__name__: (self._make, frozenset())}, section.args)

    def check(self, hparams: HParams) -> None:
        self._takers.check(hparams)
        if self._file is not None or self._class is pl.LightningModule:
            self._learn_class(hparams)
        callbacks, settings = self._callbacks(hparams), self._trainer(hparams)
        with unit_process(_CPU):
            try:
                make_trainer(settings, callbacks, RowLogger(0), 1, _CPU, NamedStateStrategy(_CPU))
            except Exception as exc:
                raise TaskError(
                    f"L.Trainer does not take task.trainer {dict(settings)} with task.callbacks "
                    f"{[type(each).__name__ for each in callbacks]}: {exc}"
                ) from exc
        checked_callbacks(self._own_callbacks(hparams))

    def takes(self, name: str) -> bool:
        return self._takers.takes(name)

    def notes(self, hparams: HParams) -> Sequence[str]:
        del hparams
        return [] if self._file is None else self._file.notes()

    def _learn_class(self, hparams: HParams) -> None:
        """A function without a declared class is called, and a file is read with the values of each
        config."""
        with self._in_unit():
            try:
                self._build(hparams, seed=0)
                if self._file is not None:
                    self._file.check(self._arguments(hparams))
            except TaskError:
                raise
            except Exception as exc:
                raise TaskError(
                    f"task.module: {self._name} failed at {place_in(str(self._root), exc)}: "
                    f"{type(exc).__name__}: {exc}"
                ) from exc

    @property
    def _has_own_callbacks(self) -> bool:
        return self._class.configure_callbacks is not pl.LightningModule.configure_callbacks

    def _own_callbacks(self, hparams: HParams) -> Sequence[pl.Callback]:
        """The callbacks of ``configure_callbacks``, on a module without values; none if none can be built."""
        with self._in_unit(), torch.device("meta"):
            try:
                return _own_callbacks(self._build(hparams, seed=0)) if self._has_own_callbacks else ()
            except Exception:  # the user's code may need anything
                return ()

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Checks the settings, the callbacks, and a module without values, unless its constructor needs
        values."""
        name = strategy.parallelism
        if name == "single":
            return None
        try:
            by = refusals.stepwise(make_parallelism(name, strategy.options), name)
            settings = self._trainer(hparams)
            refusals.refuse_settings(settings, by, name)
            refusals.precision_of(settings, name)
            refusals.refuse_callbacks(self._callbacks(hparams), by, name)
            with self._files.borrowed():
                refusals.refuse_unmade(lambda: self._build(hparams, seed=0), by, name, strategy.ranks)
        except TaskError as refused:
            return str(refused)
        return None

    def train(self, job: UnitJob) -> UnitResult:
        end = job_batches.unit_batches(job)
        logger = RowLogger(job.unit.epoch)
        strategy = _strategy(job)
        with self._in_unit(strategy.root_device), closing(strategy):
            module = self._build(job.hparams, job.seed)
            unit = SubEpoch(
                module,
                self._new_trainer(job.hparams, logger, job.epochs, strategy),
                state=self._state(job, module),
                batches_left=end - job.skip,
                first=not job.visited and not job.skip,
                last=job.last and job.unit.phase is not Phase.PROFILE,
                resumes=job.skip > 0,
                inherits=job.inherits is not None,
                seed=job_batches.rank_seed(job),
            )
            unit_loaders = UnitLoaders(job, strategy)
            training, validation = unit_loaders.training(), unit_loaders.validation(module)
            with attached(data_module(job), training, validation) as loaders:
                unit.fit(loaders, training.opened)
        assert unit.state is not None
        done = end if unit.stopped_after is None else unit.stopped_after
        return UnitResult(
            state=unit.state,
            before=unit.untrained,
            samples=job_batches.rows_until(job, done),
            batches=done - job.skip,
            metrics=unit.metrics,
            log=logger.rows,
            done=unit.stopped_early,
            whole=done == end,
            not_finite=unit.not_finite,
        )

    def observed(self, observe: Observe) -> AbstractContextManager[None]:
        return observed(observe)

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        first = jobs[0]
        with self._in_unit(torch.device(first.device)):
            module = self._build(first.hparams, first.seed)
            trainer, callbacks = self._trainer(first.hparams), self._callbacks(first.hparams)
            return ordinary_fit(module, trainer, callbacks, jobs, observe)

    def evaluate(self, job: UnitJob) -> UnitResult:
        """Validate the partition outside of the fit, by ``validation_step``, without callbacks."""
        assert job.state is not None
        device = torch.device(job.device)
        with self._in_unit(device):
            metrics = self._measured(job, loader_of_rows(job), device, "validate", Unchanged())
        return evaluated(job, metrics)

    @property
    def evaluates(self) -> bool:
        return is_overridden("validation_step", self._class, pl.LightningModule)

    def why_not_apart(self, hparams: HParams, strategies: Sequence[Strategy]) -> str | None:
        if any(strategy.ranks > 1 for strategy in strategies):
            return "a module is validated apart on one rank: use `parallelism: single`"
        callbacks = [*self._callbacks(hparams), *checked_callbacks(self._own_callbacks(hparams))]
        if watching := [name for each in callbacks if (name := watches_validation(each))]:
            return (
                f"{', '.join(watching)} would not be called, since a partition is validated outside of the "
                "fit: remove the callback, or let it monitor a value of training, under a name that begins "
                "with `train`"
            )
        return None

    @property
    def splits(self) -> bool:
        return True

    def measure_test(self, job: UnitJob) -> ModelValues:
        """By the module's ``test_step``, or its ``validation_step`` if it has none; without callbacks."""
        assert job.state is not None
        device = torch.device(job.device)
        if self._class is pl.LightningModule:
            self._learn_class(job.hparams)
        with self._in_unit(device):
            stage: Stage = (
                "test" if is_overridden("test_step", self._class, pl.LightningModule) else "validate"
            )
            if stage == "validate" and not self.evaluates:
                raise TaskError(
                    f"{self._class.__name__} has no test_step, nor a validation_step, to measure a test set "
                    "with: define one of them"
                )
            whole = self._measured(job, loaders_of_test_set(job), device, stage)
            alone = self._alone(job, loaders_of_test_set(job, single=True), device, stage)
        rows = {name: alone.get(name, alone.get(name.removesuffix("_epoch"), ())) for name in whole}
        return ModelValues(
            {named_as_test(name): value for name, value in whole.items()},
            {named_as_test(name): values for name, values in rows.items() if values},
        )

    def _alone(
        self, job: UnitJob, loaders: Any, device: torch.device, stage: Stage
    ) -> dict[str, list[float]]:
        """The module's logged values for each row alone, by name, over ``loaders`` with batches of one row;
        empty without loaders, or if it fails for a row: some metrics have no value for a single row."""
        notes = RowNotes()
        if loaders is None:
            return {}
        try:
            self._measured(job, loaders, device, stage, notes)
        except Exception:  # the user's code may fail on a single row
            return {}
        return notes.rows

    def _measured(
        self, job: UnitJob, loaders: Any, device: torch.device, stage: Stage, *callbacks: pl.Callback
    ) -> dict[str, float]:
        """The metrics that the module logs over the batches of ``loaders``."""
        assert job.state is not None
        module = load_state(self._build(job.hparams, job.seed), job.state)
        strategy = NamedStateStrategy(device)
        trainer = make_trainer(self._trainer(job.hparams), callbacks, RowLogger(0), 1, device, strategy)
        run = trainer.test if stage == "test" else trainer.validate
        with attached(data_module(job), None, loaders) as given:
            data = given if "datamodule" in given else {"dataloaders": loaders}
            run(module, **data, verbose=False)
        return {name: float(value) for name, value in trainer.callback_metrics.items()}  # as after a fit

    def load_module(self, hparams: HParams, state: TaskState, seed: int) -> pl.LightningModule:
        """The module of a config as it was when a unit left ``state``, on the CPU."""
        with self._in_unit():
            return load_state(self._build(hparams, seed), state)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        with self._in_unit():
            trainer = self._new_trainer(hparams, RowLogger(0), epochs, NamedStateStrategy(_CPU))
            module, arguments = self._build(hparams, seed), self._arguments(hparams)
            of_module = arguments if self._file is None else {}
            checkpoint, lost = stock_checkpoint(module, trainer, state, batches, of_module)
            adapter = adapter_of(module)
        if self._file is not None:
            load = self._file.how_to_load(arguments)
        else:
            assert self._section.module is not None
            load = how_to_load(self._section.module, arguments if self._make is not self._class else None)
        card = {"library_name": "lightning"}
        return Exported(
            checkpoint["state_dict"], load, checkpoint, not_carried=lost, card=card, further=adapter
        )

    def _state(self, job: UnitJob, module: pl.LightningModule) -> TaskState | None:
        if job.state is None or job.inherits is None:
            return job.state
        return with_own_attributes(job.state, self._build(job.inherits, job.seed), module)

    def _build(self, hparams: HParams, seed: int) -> pl.LightningModule:
        """The module as a script makes it: seed everything, then call the constructor or the function."""
        pl.seed_everything(seed, verbose=False)
        with Zeroed():
            module = self._make(**self._arguments(hparams))
        if not isinstance(module, pl.LightningModule):
            what = f"task.module: {self._name} returned a {type(module).__name__}"
            raise TaskError(f"{what}: it must return a LightningModule")
        if type(module) is not self._class:
            self._class = type(_checked(module, self._name))
        return module

    def _arguments(self, hparams: HParams) -> dict[str, Any]:
        values = combined_arguments(self._section.args, hparams)
        if "batch_size" not in inspect.signature(self._make).parameters:  # not by ``**kwargs`` either
            values.pop("batch_size", None)
        return select_arguments(self._make, values)

    def _trainer(self, hparams: HParams) -> Mapping[str, Any]:
        """The arguments of the trainer."""
        return self._section.trainer if self._file is None else self._file.trainer(self._arguments(hparams))

    def _callbacks(self, hparams: HParams) -> list[pl.Callback]:
        if self._file is None:
            return make_callbacks(self._section.callbacks, self._root)
        return checked_callbacks(self._file.callbacks(self._arguments(hparams)))

    def _new_trainer(
        self, hparams: HParams, logger: RowLogger, epochs: int, strategy: NamedStateStrategy
    ) -> pl.Trainer:
        callbacks, device = self._callbacks(hparams), strategy.root_device
        return make_trainer(self._trainer(hparams), callbacks, logger, epochs, device, strategy)

    @contextmanager
    def _in_unit(self, device: torch.device = _CPU) -> Iterator[None]:
        """A block in which the user's code may run: its traces in the process are removed at the end."""
        with self._files.borrowed(), unit_process(device):
            yield


def _own_callbacks(module: pl.LightningModule) -> Sequence[pl.Callback]:
    own = module.configure_callbacks()
    return own if isinstance(own, Sequence) else [own]


def _config_file(section: LightningSection, root: Path) -> ConfigFile | HydraFile | None:
    """Imported on use, since they need jsonargparse and Hydra."""
    if section.config is None:
        return None
    if is_hydras(section.config):
        from cerebro_lightning.hydra_file import HydraFile

        return HydraFile(section.config)
    from cerebro_lightning.config_file import ConfigFile

    return ConfigFile(section.config, section.cli, root)


def _maker(reference: str | None, root: Path) -> Any:
    """The class, or the function that makes its modules."""
    assert reference is not None  # by the section
    made = import_object(reference, root)
    if both_loaded():
        raise TaskError(
            "this process has imported both `pytorch_lightning` and `lightning`, whose classes are different "
            "ones: import one of them alone, or cerebro_lightning before them, and both names are one"
        )
    is_class = isinstance(made, type)
    if not callable(made) or (is_class and not issubclass(made, pl.LightningModule)):
        raise TaskError(
            f"task.module: {reference} is {made!r}, expected a class derived from LightningModule, or a "
            "function that returns such a module"
        )
    return _checked(made, reference) if is_class else made


def _class_made_by(make: Any) -> type[pl.LightningModule]:
    """The declared return type of a function, or the class of a class method; ``LightningModule`` without
    one."""
    try:
        said = get_type_hints(make).get("return") if not isinstance(make, type) else make
    except Exception:  # names of types that are not there
        said = None
    for kind in (said, getattr(make, "__self__", None)):
        if isinstance(kind, type) and issubclass(kind, pl.LightningModule):
            return kind
    return pl.LightningModule


_Made = TypeVar("_Made", type[pl.LightningModule], pl.LightningModule)


def _checked(made: _Made, reference: str) -> _Made:
    """The class, or a module of it, of which methods may have been replaced."""
    for method in ("training_step", "configure_optimizers"):
        if not is_overridden(method, made, pl.LightningModule):
            raise TaskError(f"task.module: {reference} has no {method}: a module that trains defines it")
    if "dataloader_iter" in inspect.signature(made.training_step).parameters:
        raise TaskError(
            f"task.module: {reference}.training_step takes dataloader_iter and so fetches its own batches, "
            "which a sub-epoch cannot count: take batch and batch_idx"
        )
    return made


def _strategy(job: UnitJob) -> NamedStateStrategy:
    device, name = torch.device(job.device), job.strategy.parallelism
    if name == "single":
        strategy = NamedStateStrategy(device, job.memory_limit_bytes)
    else:
        kind = DistributedStrategy if name == "ddp" else ShardedStrategy
        by = refusals.stepwise(make_parallelism(name, job.strategy.options), name)
        strategy = kind(device, name, by, job.state, job.memory_limit_bytes)
    strategy.stays = job.stays
    if job.state is not None:
        strategy.values = job.state[MODEL]
    return strategy
