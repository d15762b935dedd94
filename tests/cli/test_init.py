"""``cerebro init`` writes the package's recipes where a user can change them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.recipes.shipped import write_shipped
from support.commands import Cerebro

SHIPPED = Path(__file__).parents[2] / "recipes"
NAMES = [
    "coco_shaped",
    "criteo_shaped",
    "digits",
    "digits_asha",
    "digits_dataset",
    "digits_jax",
    "digits_keras",
    "digits_pbt",
    "digits_sklearn",
    "digits_torch",
    "fashion_mnist",
    "imagenet_shaped",
    "lightning",
    "lora_sweep",
    "pretrain_bytes",
    "sentences_sweep",
    "tabular",
    "text_ragged",
    "tiny_gpt",
    "torch",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_written_project_is_complete(name: str, tmp_path: Path) -> None:
    path, *modules = write_shipped(name, tmp_path / "new" / "folder")
    recipe = load_recipe(path)
    given = {module.stem for module in modules}
    named = [recipe.data.source, recipe.data.dataset, *recipe.data.decode.values()]
    assert {name.partition(":")[0] for name in named if name and ":" in name} <= given
    imported = {name for module in modules for name in re.findall(r"(?m)^from (\w+)", module.read_text())}
    assert {name for name in imported if (SHIPPED / f"{name}.py").exists()} <= given
    assert "recipes/" not in path.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digit"], "no recipe to begin with is called 'digit'; did you mean 'digits'?"),
        (["../digits"], "no recipe to begin with is called '../digits'"),
        (["torch", "/proc/nowhere"], "cannot write into /proc/nowhere"),
        (["torch", "a_users_net.py"], "cannot write into a_users_net.py"),
    ],
)
@pytest.mark.usefixtures("project")
def test_impossible_requests_are_reported(words: list[str], message: str, cerebro: Cerebro) -> None:
    said = cerebro("init", *words)
    assert said.code == 2
    assert message in said.err


def test_a_users_file_is_not_overwritten(cerebro: Cerebro, project: Path) -> None:
    (project / "my_torch.py").write_text("mine")
    said = cerebro("init", "torch")
    assert said.code == 2
    assert "my_torch.py exists, and is not overwritten" in said.err
    assert (project / "my_torch.py").read_text() == "mine"
    assert not (project / "torch.yaml").exists()


@pytest.mark.parametrize("words", [["run"], ["run", "nowhere.yaml"]])
def test_without_a_recipe_cerebro_run_points_to_cerebro_init(words: list[str], cerebro: Cerebro) -> None:
    said = cerebro(*words)
    assert said.code == 2
    assert "cerebro init" in said.err
