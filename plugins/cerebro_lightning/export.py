"""A config's state as a Lightning checkpoint, for users without this package."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import lightning.pytorch as pl
from torchmetrics import Metric, MetricCollection

from cerebro_elastic.extending.state import Encoder, Tree, cloned, known_of_model, values_equal
from cerebro_elastic.extending.tasks import GENERATORS, TaskState
from cerebro_lightning._lightning_internals import callbacks_of, dump_checkpoint
from cerebro_lightning.loaders import EpochLoader
from cerebro_lightning.optimizers import OURS
from cerebro_lightning.state import roots_of
from cerebro_lightning.subepoch import SubEpoch

_HPARAMS, _NAME = (
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_KEY,
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_NAME,
)


def stock_checkpoint(
    module: pl.LightningModule,
    trainer: pl.Trainer,
    state: TaskState,
    batches: int,
    arguments: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """The checkpoint of ``trainer.save_checkpoint`` at the end of an epoch of ``batches`` batches, and the
    names of the state that it lacks.

    ``module`` and ``trainer`` are fresh; the ``state`` was left by the epoch's last unit. ``arguments`` are
    those of the module's constructor: ``load_from_checkpoint`` finds them, whether the module saves its
    hyper-parameters or not.
    """
    unit = _Halt(module, trainer, state=state, batches_left=0, first=True, last=False)
    unit.fit({"train_dataloaders": EpochLoader(batches, lambda: iter(()))})
    checkpoint = unit.checkpoint
    if checkpoint.get(_NAME) not in arguments:
        checkpoint[_HPARAMS] = {**arguments, **checkpoint.get(_HPARAMS, {})}
    return checkpoint, list(_not_carried(unit, state[OURS]))


def _not_carried(unit: _Halt, ours: Mapping[str, Any]) -> Iterator[str]:
    yield GENERATORS
    if ours["grads"]:
        yield f"the gradients to which the next batch adds: {', '.join(sorted(ours['grads']))}"
    for owner, fresh, tree in zip(unit.owners, unit.as_made, ours["attributes"], strict=True):
        if isinstance(owner, pl.LightningModule):
            name = type(owner).__name__
            if "trained" in ours["structure"]:
                yield f"the choice of trained parameters of {name}"
            for path, buffers in tree["buffers"].items():
                before = fresh["buffers"].get(path, {})
                for change in _changed(f"{name}.{path}".rstrip("."), before, buffers):
                    yield f"{change}, a buffer that is not persistent"
            metrics = {
                path for path, part in owner.named_modules() if isinstance(part, Metric | MetricCollection)
            }
            for path, attributes in tree["attributes"].items():
                before = fresh["attributes"].get(path, {})
                if not any(path == metric or path.startswith(f"{metric}.") for metric in metrics):
                    yield from _changed(f"{name}.{path}".rstrip("."), before, attributes)
        elif type(owner).state_dict is pl.Callback.state_dict:
            yield from _changed(type(owner).__name__, fresh, tree)


def _changed(owner: str, fresh: Tree, tree: Tree) -> Iterator[str]:
    """The attributes that training has changed."""
    for name, value in tree.items():
        if name != "training" and not (name in fresh and values_equal(fresh[name], value)):
            yield f"the attribute {owner}.{name}"


def how_to_load(module: str, arguments: Mapping[str, Any] | None, attribute: str = "") -> str:
    """Python code that loads an exported checkpoint of the class ``module`` (``module:name``), or of the
    function that made the module of ``arguments``, or of an object that has it as an ``attribute``."""
    where, _, name = module.partition(":")
    text = _LOAD if arguments is None else _LOAD_MADE
    return text.format(
        where=where, name=name, first=name.partition(".")[0], arguments=arguments, attribute=attribute
    )


_LOAD = """\
import lightning as L
from {where} import {name}

model = {name}.load_from_checkpoint("CHECKPOINT")
# or continue training: L.Trainer(max_epochs=...).fit({name}(...), loader, ckpt_path="CHECKPOINT")
"""


_LOAD_MADE = """\
import torch
from {where} import {first}

model = {name}(**{arguments}){attribute}
model.load_state_dict(torch.load("CHECKPOINT", weights_only=True)["state_dict"])
"""


def adapter_of(module: pl.LightningModule) -> dict[str, bytes]:
    """The files by which ``PeftModel.from_pretrained`` loads the adapter of the model of PEFT in the module;
    none without such a model, or with several."""
    peft = sys.modules.get("peft")
    models = [part for part in module.modules() if isinstance(part, peft.PeftModel)] if peft else []
    if len(models) != 1:
        return {}
    for config in models[0].peft_config.values():
        for name, value in vars(config).items():
            if isinstance(value, set):  # in the order of this process's hashes
                setattr(config, name, sorted(value))
    with TemporaryDirectory() as folder:
        models[0].save_pretrained(folder)
        # Adapters of other names are in other folders.
        files = [path for path in sorted(Path(folder).glob("adapter_*")) if path.is_file()]
        return {path.name: path.read_bytes() for path in files}


class _Halt(SubEpoch):
    """Loads a state and trains no batch. ``as_made`` has the attributes of its ``owners``, the module and the
    callbacks, from before."""

    def enter(self) -> NoReturn:
        self.owners: tuple[Any, ...] = (self.module, *callbacks_of(self.trainer))
        encoder = Encoder(known_of_model(self.module, self.trainer.optimizers), strict=False)
        # Copies: restoring writes into the present objects.
        self.as_made = cloned([root.tree(encoder) for root in roots_of(self.module, self.owners[1:])])
        super().enter()
        self.leave()

    def _capture(self) -> None:
        self.checkpoint = dump_checkpoint(self.trainer)
        # By number, where our strategy has names.
        self.checkpoint["optimizer_states"] = [o.state_dict() for o in self.trainer.optimizers]
