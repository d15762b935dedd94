"""What a run is compared with: its recipe's model in a plain loop, over the same batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

import cerebro_elastic
from cerebro_elastic.registry import import_object

WARM_EPOCHS = 5


def plain_seconds_per_unit(path: Path, epochs: int) -> float:
    """Seconds that as many batches as a unit has take in a plain fit, validation included.

    The mean over the first and the last point of the recipe's space; of each the median of the epochs behind
    the first ones, which import. Raises ``SystemExit`` for a recipe of another task.
    """
    torch.set_num_threads(1)
    recipe = cerebro_elastic.load_recipe(path)
    fits = {"lightning": lightning_fit, "torch": torch_loop}
    if (kind := recipe.task.kind) not in fits:
        raise SystemExit(f"{path} has a task of the kind {kind}: there is a plain peer for {', '.join(fits)}")
    medians = []
    for point in (0, -1):
        hparams = point_of(recipe.search.space, point)
        batch_size = int(hparams.pop("batch_size", recipe.data.batch_size))
        times = fits[kind](recipe, path.parent, hparams, loaders(recipe, path.parent, batch_size), epochs)
        medians.append(statistics.median(b - a for a, b in pairwise(times[WARM_EPOCHS:])))
    return statistics.mean(medians) / (recipe.data.partitions or 1)


def point_of(space: Mapping[str, Any], point: int) -> dict[str, Any]:
    """A corner of a recipe's space: of each list or range one end."""
    kinds = ("choice", "integers", "uniform", "loguniform")
    given = {name: [getattr(domain, kind) for kind in kinds] for name, domain in space.items()}
    return {name: next(filter(None, values))[point] for name, values in given.items()}


def loaders(recipe: Any, root: Path, batch_size: int) -> tuple[Any, Any]:
    """Loaders of the recipe's rows for training and validation, which index whole batches."""
    columns = [torch.as_tensor(array) for array in import_object(str(recipe.data.source), root)().values()]
    rows = int(len(columns[0]) * (1 - recipe.data.valid))

    def loader(part: slice, sampler: Any) -> Any:
        data = TensorDataset(*(column[part] for column in columns))
        return DataLoader(
            data, sampler=BatchSampler(sampler(data), batch_size, drop_last=False), batch_size=None
        )

    return loader(slice(rows), RandomSampler), loader(slice(rows, None), SequentialSampler)


def lightning_fit(recipe: Any, root: Path, hparams: Mapping[str, Any], data: Any, epochs: int) -> list[float]:
    """When each epoch of an ordinary ``Trainer.fit`` began."""
    import lightning as L

    times: list[float] = []
    clock = L.pytorch.callbacks.LambdaCallback(
        on_train_epoch_start=lambda *_: times.append(time.perf_counter())
    )
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    module = import_object(str(recipe.task.model_dump()["module"]), root)(**hparams)
    L.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[clock], **quiet).fit(module, *data)
    return times


def torch_loop(recipe: Any, root: Path, hparams: Mapping[str, Any], data: Any, epochs: int) -> list[float]:
    """When each epoch of a loop by hand began; it sums loss and accuracy, as a run logs them."""
    task = recipe.task.model_dump()
    prepare = import_object(task["input_fn"], root) if task.get("input_fn") else tuple
    rates = {"lr": hparams["lr"]}
    model = import_object(task["model_fn"], root)(**{k: v for k, v in hparams.items() if k not in rates})
    optimizer = getattr(torch.optim, task["optimizer"])(model.parameters(), **rates)
    loss_of = getattr(F, task["loss"])
    train, valid = data

    def outputs(batches: Any) -> Iterator[tuple[torch.Tensor, float]]:
        for batch in batches:
            x, y = prepare(batch)
            output = model(x)
            loss = loss_of(output, y)
            yield loss, loss.item() + (output.argmax(1) == y).float().mean().item()

    times = []
    for _ in range(epochs):
        times.append(time.perf_counter())
        model.train()
        for loss, _shown in outputs(train):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in outputs(valid):
                pass
    return times
