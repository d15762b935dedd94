"""Recipes: defaults, round trip, and one line for each thing that is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import NodeRange, TorchSection, load_recipe
from cerebro_elastic.recipes.source import read_yaml
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.addresses import at_home
from cerebro_lightning.section import LightningSection

MINIMAL: dict[str, Any] = {
    "task": {"kind": "lightning", "module": "digits:Net"},
    "data": {"source": "digits.npz"},
    "search": {"space": {"lr": [0.1, 0.01]}},
}

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghi")
)
"""Nine lines that stand for 387 million values."""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "digits.yaml"
    path.write_text(text)
    return path


def complaint(recipe: Any, **overrides: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe, **overrides)
    return str(caught.value)


def test_a_minimal_recipe_has_sensible_defaults(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
task: {kind: lightning, module: 'digits:Net'}
data: {source: digits.npz}
search:
  space: {lr: [1e-1, 0.01], width: {int: [16, 64]}, act: relu}
""",
    )
    recipe = load_recipe(path)
    assert recipe.name == "digits"
    assert recipe.root == tmp_path.resolve()
    assert recipe.nodes == NodeRange(1, 1, auto=True)
    assert isinstance(recipe.task, LightningSection)
    assert (recipe.data.partitions, recipe.data.valid, recipe.data.batch_size) == (4, 0.2, 32)
    assert recipe.search.space["lr"].choice == (0.1, 0.01), "1e-1 is a number, as in YAML 1.2"
    assert recipe.search.space["width"].integers == (16, 64)
    assert recipe.search.space["act"].choice == ("relu",)
    assert (recipe.objective.metric, recipe.objective.mode) == ("val_loss", "min")
    assert recipe.scheduler == "auto"


@pytest.mark.parametrize(
    "section", ["objective: {metric: val_f1}", "data: {source: d.csv}", "search: {method: random}"]
)
def test_a_lone_text_is_shown_as_the_mapping_that_is_meant(section: str) -> None:
    key, _, value = section.rstrip("}").replace("{", "").split(": ")
    with pytest.raises(RecipeError, match=re.escape(f"expected a mapping, `{section}`")):
        load_recipe({"task": {"kind": "sklearn", "estimator": "m:f"}, key: value})


def test_a_tilde_is_the_users_home_in_each_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path = written(
        tmp_path,
        """
task: {kind: lightning, module: 'a:B', args: {path: ~/x}}
data: {source: ~/x.csv, valid: ~/v.csv}
search: {space: {lr: [0.1]}, known: [~/runs/a, b], start: {run: ~/runs/c}}
checkpoints: file://~/ckpt
""",
    )
    recipe = load_recipe(path)
    assert (recipe.data.source, recipe.data.valid) == ("/home/me/x.csv", "/home/me/v.csv")
    assert recipe.checkpoints == "file:///home/me/ckpt" == recipe.rooted(recipe.checkpoints)
    assert recipe.search.start is not None
    assert (recipe.search.start.run, recipe.search.known) == ("/home/me/runs/c", ("/home/me/runs/a", "b"))
    assert recipe.task.model_dump()["args"] == {"path": "~/x"}, "the user's own"
    assert load_recipe(MINIMAL, data={"url": "~/d", "source": None}).data.url == "/home/me/d"
    assert at_home("sqlite:///~/mlflow.db") == "sqlite:////home/me/mlflow.db", "of a tracker"
    with pytest.raises(RecipeError, match="no such user"):
        load_recipe(MINIMAL, checkpoints="file://~nobody-here/x")


@pytest.mark.parametrize("name", ["my sweep", "größe", "-x", "a" * 101])
def test_a_file_whose_name_names_no_run_is_named_as_such(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(
        "task: {kind: lightning, module: 'a:B'}\ndata: {source: x.npz}\nsearch: {space: {lr: [1]}}"
    )
    found = complaint(path)
    assert found.startswith(f"{name}.yaml (the recipe has no `name:`, so it has the file's name): name is ")
    assert "use letters from a to z" in found
    assert load_recipe(path, name="sweep").name == "sweep"


MERGED = """
base: &base {a: 1, b: {c: 2}}
other: &other {a: 5, d: 6, <<: *base}
one: {<<: *base, a: 3}
several: {x: 0, <<: [*other, *base]}
quoted: {'<<': 1}
"""


def test_yaml_merges_mappings() -> None:
    values = read_yaml(MERGED, "x.yaml").values
    assert values["one"] == {"a": 3, "b": {"c": 2}}
    assert values["several"] == {"x": 0, "a": 5, "d": 6, "b": {"c": 2}}
    assert values["quoted"] == {"<<": 1}
    assert read_yaml(MERGED, "x.yaml").where(("one", "b", "c")) == "x.yaml:2"
    for wrong, message in {
        "a: {<<: 1}": "x.yaml:1: `<<` merges a mapping",
        "a: {<<: [{b: 1}, c]}": "x.yaml:1: `<<` merges a mapping",
        "a: &a {<<: *a}": "nested more than",
    }.items():
        with pytest.raises(RecipeError, match=message):
            read_yaml(wrong, "x.yaml")


def test_values_that_yaml_1_1_would_misread_keep_their_type(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
task: {kind: lightning, module: 'a:B', args: {day: 2024-01-01, flag: on, big: 0x10, old: 010, none: }}
data: {source: x.npz}
search: {space: {lr: [5E-4, -1e3, .5, true]}}
""",
    )
    recipe = load_recipe(path)
    assert recipe.task.model_dump()["args"] == {
        "day": "2024-01-01",
        "flag": "on",
        "big": 16,
        "old": 10,
        "none": None,
    }
    assert recipe.search.space["lr"].choice == (0.0005, -1000.0, 0.5, True)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {
            "task": {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss", "args": {"x": None}},
            "nodes": "1:8",
        },
        {"data": {"url": "s3://bucket/digits"}, "seed": 7},
        {
            "task": {
                "kind": "lightning",
                "module": "digits:Net",
                "callbacks": ["digits:Note", {"class": "EarlyStopping", "args": {"monitor": "val_loss"}}],
            }
        },
        {"search": {"method": "random", "num": 3, "space": {"lr": {"loguniform": [1e-4, 0.1]}}}},
        {"parallelism": ["single", {"use": "fsdp", "ranks": 2, "offload": True}], "gang": 2, "nodes": 2},
        {"parallelism": "auto"},
    ],
)
def test_resolved_gives_an_equal_recipe(change: dict[str, Any]) -> None:
    recipe = load_recipe({**MINIMAL, **change})
    again = load_recipe(recipe.resolved())
    assert again == recipe
    assert again.digest == recipe.digest
    assert hash(again) == hash(recipe)


def test_the_digest_follows_the_values_and_not_the_place(tmp_path: Path) -> None:
    recipe = load_recipe(MINIMAL)
    assert load_recipe(MINIMAL, root=tmp_path).digest == recipe.digest
    assert load_recipe(MINIMAL, epochs=2).digest != recipe.digest


def test_overrides_replace_values_and_merge_sections() -> None:
    recipe = load_recipe(load_recipe(MINIMAL), epochs=3, data={"batch_size": 8}, nodes=2)
    assert (recipe.epochs, recipe.data.batch_size, recipe.data.source) == (3, 8, "digits.npz")
    assert recipe.nodes == NodeRange(2, 2)


def test_a_space_takes_what_python_has() -> None:
    space = {
        "lr": np.logspace(-3, -1, 3),
        "decay": np.float32(0.5),
        "depth": range(1, 3),
        "sizes": [(64, 32), (np.int64(8),)],
        "drop": {"uniform": (np.float64(0.1), 0.5)},
        "kind": {"branches": {"wide": {"width": np.arange(2)}, "deep": {}}},
    }
    said = {
        "lr": [0.001, 0.01, 0.1],
        "decay": 0.5,
        "depth": [1, 2],
        "sizes": [[64, 32], [8]],
        "drop": {"uniform": [0.1, 0.5]},
        "kind": {"branches": {"wide": {"width": [0, 1]}, "deep": {}}},
    }
    taken, written_out = (load_recipe({**MINIMAL, "search": {"space": each}}) for each in (space, said))
    assert taken.resolved() == written_out.resolved()
    assert "give its name, 'dict'" in complaint({**MINIMAL, "search": {"space": {"act": [dict]}}})


def test_all_problems_are_listed_with_their_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """epohs: 5
nodes: "8:1"
task:
  kind: lightning
  module: digits
  trainr: {}
data:
  source: x.npz
  batch_size: '32'
  valid: 2
search:
  method: gird
  space:
    lr: [0.1, 0.1]
    width: {int: [64, 16]}
    depth: {integer: [1, 2]}
    act: []
    decay: {loguniform: [0, 1]}
objective: {mode: maximum}
limits: {tries: 0, not_finite: ignore, hang_factor: 0.5, hang_seconds: 0}
""",
    )
    lines = complaint(path).splitlines()
    assert len(lines) == 17
    for line, words in [
        (1, "unknown key 'epohs'; did you mean 'epochs'?"),
        (2, "nodes is '8:1': nodes is a number from 1 to 1000, or a range"),
        (5, "task.module is 'digits': expected 'module:name'"),
        (6, "unknown key 'task.trainr'; did you mean 'trainer'?"),
        (9, "data.batch_size is '32': expected a whole number without a unit or quotes"),
        (10, "data.valid is 2: the share of rows"),
        (12, "search.method is 'gird': unknown name; did you mean 'grid'?"),
        (14, "search.space.lr is [0.1, 0.1]: 0.1 is listed twice"),
        (15, "the lower bound comes first"),
        (16, "unknown key 'search.space.depth.integer'; did you mean 'int'?"),
        (17, "search.space.act is []: an empty list leaves nothing to try"),
        (18, "loguniform needs a lower bound above 0"),
        (19, "objective.mode is 'maximum': choices: 'min' or 'max'"),
        (20, "limits.tries is 0: input should be greater than or equal to 1"),
        (20, "limits.not_finite is 'ignore': choices: 'fail' or 'go-on'"),
        (20, "limits.hang_factor is 0.5: input should be greater than or equal to 1"),
        (20, "limits.hang_seconds is 0: input should be greater than 0"),
    ]:
        assert any(text.startswith(f"digits.yaml:{line}: ") and words in text for text in lines), words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "digits.yaml: the recipe is empty"),
        ("a: 1\nb: [1, 2", "digits.yaml:2: not valid YAML"),
        ("a: 1\nb: 2\na: 3", "digits.yaml:3: 'a' appears twice, first at digits.yaml:1"),
        ("a: !!python/object:os.system x", "not valid YAML"),
        (BOMB, "digits.yaml:1: over 100,000 values, with aliases (*name) written out"),
        ("a: &a {b: *a}", "digits.yaml:1: lists and mappings are nested more than 100 deep"),
    ],
)
def test_bad_yaml_is_one_clear_message(tmp_path: Path, text: str, words: str) -> None:
    assert words in complaint(written(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": {"kind": "tensorflow"}}, "choices: boosting, jax, keras, lightning, sklearn, torch"),
        (
            {"task": {"kind": "torch", "model_fn": "m:f"}},
            "needs `loss` (for the ready-made step) or `train_fn`",
        ),
        ({"data": {"shards": "a", "stratify": "y"}}, "stratify: not with `shards`, of which no row is read"),
        ({"search": {"space": {}}}, "`space` is empty"),
        ({"name": "a/b"}, "name is 'a/b': it names the run's folder and keys in etcd: use letters"),
        ({"data": {"source": "$HOME/x.csv"}}, r"data.source is '$HOME/x.csv': a path in a recipe has no var"),
        ({"data": {"url": "https://me:secret@h/x"}}, "data.url is 'https://h/x': a recipe is written down"),
        ({"etcd": "http://me:secret@h:1"}, "etcd endpoint 'h:1' is not HOST:PORT"),
        ({"parallelism": "dpp"}, "unknown name; did you mean 'ddp'? choices: auto, ddp, deepspeed, fsdp"),
        (
            {"parallelism": {"use": "fsdp", "ranks": 3}},
            "fsdp on 3 ranks: a unit's nodes have 1 (`gang` 1 x `node.ranks` 1): take fewer, or `gang: 3`",
        ),
        ({"gang": 2, "nodes": 2}, "`gang` is 2, and nothing here trains on more than 1 node:"),
        (
            {"gang": 2, "nodes": "1:4", "parallelism": ["ddp", "fsdp"]},
            "everything here takes 2 nodes, and the run may begin with 1 and wait: say "
            "`nodes: 2:4`, or add a parallelism that takes fewer",
        ),
    ],
)
def test_rules_between_values(change: dict[str, Any], words: str) -> None:
    assert words in complaint({**MINIMAL, **change})


HUGE = 10**30


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": HUGE}, "epochs is 1000000000000000000000000000000: input should be less"),
        ({"search": {"budget": {"hours": 1, "timeout": 60}}}, "`timeout` and `hours` are the same"),
        ({"search": {"budget": {"deadline": "tomorrow"}}}, "give a date and time such as 2026-12-01T08:00"),
        ({"search": {"space": {"width": {"int": [0, HUGE]}}}}, "bounds lie within"),
    ],
)
def test_numbers_have_limits(change: dict[str, Any], words: str) -> None:
    assert words in complaint(MINIMAL, **change)


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    remedy = install_extra("deepspeed")
    assert f"deepspeed is not installed: {remedy}" in complaint({**MINIMAL, "parallelism": "deepspeed"})
    assert f"for deepspeed: {remedy}" in complaint({**MINIMAL, "parallelism": "zero"})


def test_a_wrong_override_is_called_one(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "task: {kind: torch, model_fn: 'm:f', loss: mse_loss}\n"
        "data: {source: x.npz}\nsearch: {space: {lr: 0.1}}\n",
    )
    assert isinstance(load_recipe(path).task, TorchSection)
    assert complaint(path, epochs="many").startswith("override: epochs is 'many'")
    assert complaint(path, data={"batch_size": 0}).startswith("override: data.batch_size is 0")
    assert complaint(load_recipe(path), search={"num": 2}).startswith("digits.yaml:3: search")


def test_a_recipe_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot read the recipe: No such file" in complaint(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"\xff\xfe\xff")
    assert "not UTF-8" in complaint(tmp_path / "latin.yaml")


def test_checking_a_recipe_imports_no_torch() -> None:
    code = (
        "import sys; from cerebro_elastic.recipes import load_recipe; "
        f"load_recipe({MINIMAL!r}); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
