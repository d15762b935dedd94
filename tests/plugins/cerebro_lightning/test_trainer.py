"""``CerebroTrainer``, as one would use it in a script."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import data_zoo
import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Subset,
    TensorDataset,
)

from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.start.prepare_data import prepare_recipe
from cerebro_lightning import CerebroTrainer
from cerebro_lightning.torch_data import kept

MODULE = """
import lightning as L
import torch
from torch.utils.data import Dataset


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


class Pairs(Dataset):
    def __init__(self, rows, transform=None) -> None:
        self.y, self.transform = torch.arange(rows), transform

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i):
        return torch.zeros(3), self.y[i]


def collate(rows):
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


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
        max_epochs=2,
        nodes=1,
        data={"partitions": 2, "batch_size": 8},
        home=tmp_path,
        enable_progress_bar=False,
    )
    result = trainer.fit(line.Line, {"lr": [0.1, 0.0]}, columns(), bias=False)
    assert result is trainer.result
    board = result.leaderboard
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
        assert list(written) == ["x", "y"]
    function = trainer.recipe(line.Line, {"lr": [0.1]}, line.rows, val_data=0.5)
    assert function.data.source == f"{line.__name__}:rows"
    assert function.data.valid == 0.5
    assert function.root == tmp_path


def prepared(recipe: Any, folder: Path) -> dict[str, Any]:
    """All rows that the recipe's source gives, by column: of one partition, not shuffled away."""
    prepare_recipe(recipe, str(folder))
    return {file.stem: np.load(file) for file in sorted(folder.glob("train/*/*.npy"))}


class Frame:
    """What is used of pandas."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


FLOWERS = {
    "length": [5.1, 4.9, 6.3, None],
    "petals": [3, 4, 5, 6],
    "file": [1.0, 2.0, 3.0, 4.0],
    "species": np.array(["setosa", "setosa", "virginica", None], object),
    "vector": [np.zeros(2), np.ones(2), np.ones(2), np.ones(2)],
}


def frames() -> list[Any]:
    tame = {name: list(column) for name, column in FLOWERS.items() if name != "vector"}
    made: list[Any] = [Frame(**FLOWERS)]
    if find_spec("pyarrow"):
        made.append(import_module("pyarrow").table(tame))
    if find_spec("pandas"):
        flowers = import_module("pandas").DataFrame(tame, index=[7, 7, 8, 9])
        made += [flowers, flowers.convert_dtypes(), flowers.astype({"species": "category"})]
    return made


def make_recipe(line: Any, tmp_path: Path, data: Any, valid: Any = 0.0, **keys: Any) -> Any:
    trainer = CerebroTrainer(home=tmp_path / "home", data={"partitions": 1, **keys})
    return trainer.recipe(line.Line, {"lr": [0.1]}, data, valid)


def test_a_table_is_taken_by_its_columns(line: Any, tmp_path: Path) -> None:
    for kind, frame in enumerate(frames()):
        use = {"label": "petals", "features": ["file"]}
        found = prepared(make_recipe(line, tmp_path, frame, frame, **use), tmp_path / f"{kind}")
        dtypes = {name: column.dtype.str for name, column in found.items()}
        assert dtypes == {"features": "<f4", "petals": "<i8"}, type(frame)
        assert sorted(found["features"][:, 0] + 2) == sorted(found["petals"])
        for keys, message in [
            ({"columns": ["length", "petals"]}, "'length' of the training data holds NaN in 1 of 4 rows"),
            ({"columns": ["file", "species"], "encode": ["species"]}, "'species' of .* has no value in 1"),
        ]:
            with pytest.raises(DataError, match=message):
                prepared(make_recipe(line, tmp_path, frame, **keys), tmp_path / "other")


def test_a_data_module_is_named_with_the_arguments_that_it_has_saved(tmp_path: Path) -> None:
    trainer = CerebroTrainer(home=tmp_path, data={"partitions": 3})
    made = data_zoo.Module(batch_size=5)
    recipe = trainer.recipe(data_zoo.Net, {"lr": [0.1]}, datamodule=made)
    assert recipe.data.datamodule == "data_zoo:Module"
    assert recipe.data.args == {"batch_size": 5}, "a default can be searched"
    assert trainer.recipe(data_zoo.Net, {"lr": [0.1]}, datamodule=data_zoo.Module).data.args == {}
    own = trainer.recipe(data_zoo.OwnLoader, {"lr": [0.1]})
    assert (own.data.datamodule, own.data.partitions) == ("data_zoo:OwnLoader", 3)
    with pytest.raises(DataError, match=r"the arguments of this Silent are unknown"):
        trainer.recipe(data_zoo.Net, {"lr": [0.1]}, datamodule=data_zoo.Silent(3))
    with pytest.raises(DataError, match="one of them"):
        trainer.recipe(data_zoo.Net, {"lr": [0.1]}, columns(), datamodule=made)


PAIRS = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))


def rows_of(recipe: Any) -> dict[str, list[Any]]:
    """By split, the rows of the recipe's datasets."""
    reference = DatasetFactory(recipe.data.dataset, recipe.root, recipe.data.args)
    made = reference.make().by_split
    return {split: [data[i] for i in range(len(data))] for split, data in made.items()}


def test_a_loaders_settings_hold_and_tensors_are_columns(line: Any, tmp_path: Path) -> None:
    make = CerebroTrainer(home=tmp_path, data={"partitions": 1}).recipe
    train = DataLoader(ConcatDataset([Subset(PAIRS, [4, 2]), PAIRS]), 4, shuffle=True, drop_last=True)
    recipe = make(line.Line, {"lr": [0.1]}, train, DataLoader(Subset(PAIRS, [1]), 9))
    data = recipe.data
    assert (data.batch_size, data.shuffle, data.drop_last, data.valid_batch_size) == (4, True, True, 9)
    assert make(line.Line, {"lr": [0.1]}, DataLoader(PAIRS, 4), 0.5).data.shuffle is False
    with np.load(str(data.source)) as written, np.load(str(data.valid)) as valid:
        assert (written["y"].tolist(), valid["y"].tolist()) == ([4, 2, 0, 1, 2, 3, 4, 5], [1])
    with pytest.raises(DataError, match="batch_size: both in `data` and settled by the DataLoader"):
        CerebroTrainer(data={"batch_size": 2}).recipe(line.Line, {"lr": [0.1]}, DataLoader(PAIRS))
    for bad, why in [
        (DataLoader(PAIRS, shuffle=True), "shuffle=True: validation"),
        (DataLoader(PAIRS, drop_last=True), "drop_last=True: validation"),
        (DataLoader(PAIRS, collate_fn=line.collate), "another collate_fn"),
        ([DataLoader(PAIRS)], "several loaders: by a LightningDataModule"),
    ]:
        with pytest.raises(DataError, match=why):
            make(line.Line, {"lr": [0.1]}, DataLoader(PAIRS), bad)  # type: ignore[arg-type]


def test_a_dataset_of_a_class_is_kept_for_the_nodes(line: Any, tmp_path: Path) -> None:
    make = CerebroTrainer(home=tmp_path, data={"partitions": 1}).recipe
    recipes = []
    for _ in range(2):  # a second call goes on with the run of the first
        loader = DataLoader(line.Pairs(5), batch_size=2, collate_fn=line.collate, num_workers=2)
        recipes.append(make(line.Line, {"lr": [0.1]}, loader, Subset(line.Pairs(9), [7])))
    assert recipes[0] == recipes[1]
    assert (recipes[0].data.collate, recipes[0].data.workers) == (f"{line.__name__}:collate", 2)
    rows = rows_of(recipes[0])
    labels = {split: [int(y) for _, y in pairs] for split, pairs in rows.items()}
    assert labels == {"train": [*range(5)], "valid": [7]}
    Path(recipes[0].data.args["kept_file"]).write_bytes(b"another")
    with pytest.raises(DataError, match="is not as `fit` has written it"):
        kept(**recipes[0].data.args)
    for transform, why in [(lambda x: x, "lambda.* cannot be imported"), ((i for i in ()), "pickle")]:
        with pytest.raises(DataError, match=f"Pairs cannot be handed to the nodes.*{why}"):
            make(line.Line, {"lr": [0.1]}, line.Pairs(5, transform))
