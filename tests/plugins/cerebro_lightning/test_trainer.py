"""``CerebroTrainer``, as one would use it in a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from cerebro_elastic.errors import CerebroError, DataError, RecipeError, TaskError
from cerebro_elastic.registry import import_object
from cerebro_lightning import CerebroTrainer

MODULE = """
import lightning as L
import torch


class Line(L.LightningModule):
    def __init__(self, lr: float, bias: bool = True) -> None:
        super().__init__()
        self.lr = lr
        self.layer = torch.nn.Linear(3, 1, bias=bias)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Stopper(L.Callback):
    pass


def rows():
    return {"x": torch.zeros(40, 3).numpy(), "y": torch.zeros(40, 1).numpy()}
"""


@pytest.fixture
def line(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The user's module, imported from a file with a name of its own."""
    name = f"line_of_{request.node.name.partition('[')[0]}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    import_object(f"{name}:Line", tmp_path)
    return __import__(name)


def columns() -> dict[str, torch.Tensor]:
    x = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    return {"x": x, "y": x.sum(1, keepdim=True)}


@pytest.mark.cluster
def test_fit_gives_the_leaderboard_and_the_best_module(line: Any, tmp_path: Path) -> None:
    trainer = CerebroTrainer(
        max_epochs=2, nodes=1, partitions=2, batch_size=8, home=tmp_path, enable_progress_bar=False
    )
    board = trainer.fit(line.Line, {"lr": [0.1, 0.0]}, columns(), bias=False)
    assert [dict(row.hparams) for row in board] == [{"lr": 0.1}, {"lr": 0.0}]
    assert board[0].best is not None
    assert board[0].best < 0.1
    module = trainer.best_module()
    assert isinstance(module, line.Line)
    state = trainer.result.state(board[0].config)
    (saved,) = (t for name, t in _tensors(state) if name.endswith("layer.weight"))
    assert torch.equal(module.layer.weight, saved)
    assert module.layer.bias is None


def _tensors(tree: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """The model's tensors in a state, by name."""
    if isinstance(tree, torch.Tensor):
        return [(path, tree)]
    if isinstance(tree, dict):
        return [
            found
            for key, value in tree.items()
            if "optim" not in str(key)
            for found in _tensors(value, str(key))
        ]
    return []


def test_data_in_every_form_make_a_recipe(line: Any, tmp_path: Path) -> None:
    trainer = CerebroTrainer(home=tmp_path, callbacks=[line.Stopper, "LearningRateMonitor"])
    arrays = {name: column.numpy() for name, column in columns().items()}
    same = [trainer.recipe(line.Line, {"lr": [0.1]}, data) for data in (columns(), arrays)]
    assert same[0].data.source == same[1].data.source
    with np.load(str(same[0].data.source)) as written:
        assert set(written) == {"x", "y"}
    dataset = trainer.recipe(line.Line, {"lr": [0.1]}, TensorDataset(*columns().values()))
    with np.load(str(dataset.data.source)) as written:
        assert list(written) == ["x0", "x1"]
    function = trainer.recipe(line.Line, {"lr": [0.1]}, line.rows, val_data=0.5)
    assert function.data.source == f"{line.__name__}:rows"
    assert function.data.valid == 0.5
    assert function.root == tmp_path


def test_parallelism_and_gang_are_the_recipes(line: Any, tmp_path: Path) -> None:
    trainer = CerebroTrainer(home=tmp_path, parallelism=["single", {"use": "ddp", "ranks": 2}], gang=2)
    recipe = trainer.recipe(line.Line, {"lr": [0.1]}, columns())
    assert [getattr(section, "use", section) for section in recipe.parallelism] == ["single", "ddp"]
    assert recipe.gang == 2


def test_what_cannot_be_used_is_said_at_once(line: Any, tmp_path: Path) -> None:
    class Local(pl.LightningModule):
        pass

    trainer = CerebroTrainer(home=tmp_path)
    cases: list[tuple[type[CerebroError], str, Any]] = [
        (TaskError, "max_steps", lambda: CerebroTrainer(max_steps=3)),
        (TaskError, "gradient_clip_val", lambda: CerebroTrainer(gradient_clip_value=1)),
        (TaskError, "top level of a .py file", lambda: trainer.recipe(Local, {"lr": [1.0]}, columns())),
        (DataError, "columns by name", lambda: trainer.recipe(line.Line, {"lr": [1.0]}, [1, 2])),  # type: ignore[arg-type]
        (RecipeError, "space", lambda: trainer.recipe(line.Line, {}, columns())),
        (
            RecipeError,
            "num",
            lambda: CerebroTrainer(search="random").recipe(line.Line, {"lr": [1.0]}, "x.npz"),
        ),
        (TaskError, "call fit first", lambda: trainer.best_module()),
    ]
    for kind, message, use in cases:
        with pytest.raises(kind, match=message):
            use()
