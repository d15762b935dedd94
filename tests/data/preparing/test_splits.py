"""`stratify` and `split_by`: which rows are held out, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.data.manifest import SPLITS, Manifest
from cerebro_elastic.data.preparing.split_rules import choose_groups, row_keys
from cerebro_elastic.data.preparing.splits import deal_rows
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes.data import Preparation
from support.prepared import prepare

ROWS = 1000
DRAW = np.random.default_rng(0)
Y = DRAW.choice(3, ROWS, p=[0.9, 0.08, 0.02])
WHO = np.array([f"p{number}" for number in DRAW.integers(0, 50, ROWS)])
COLUMNS: dict[str, Any] = {"row": np.arange(ROWS), "y": Y, "who": WHO}


def rows_of(folder: Path, manifest: Manifest) -> dict[str, np.ndarray[Any, Any]]:
    """By split, the numbers of its rows."""
    return {
        split: np.concatenate([np.load(folder / part.files[0].path) for part in manifest.split(split)])
        for split in SPLITS
        if manifest.split(split)
    }


def split(folder: Path, rules: dict[str, Any], columns: Any = COLUMNS, **settings: Any) -> dict[str, Any]:
    given = {"partitions": 3, "seed": 1, "valid": 0.2, **settings}
    manifest = prepare(lambda: columns, str(folder), columns=["row"], **rules, **given)
    return rows_of(folder, manifest)


def test_each_split_has_of_each_class_its_share(tmp_path: Path) -> None:
    rows = split(tmp_path / "a", {"stratify": "y"})
    assert {name: len(numbers) for name, numbers in rows.items()} == {"train": 800, "valid": 200}
    assert sorted(np.concatenate(list(rows.values()))) == list(range(ROWS))
    whole = np.bincount(Y)
    for name, share in {"train": 0.8, "valid": 0.2}.items():
        assert (np.abs(np.bincount(Y[rows[name]], minlength=3) - share * whole) <= 1).all(), name
    again = split(tmp_path / "b", {"stratify": "y"})
    other = split(tmp_path / "c", {"stratify": "y"}, seed=2)
    assert (again["valid"] == rows["valid"]).all()
    assert set(other["valid"]) != set(rows["valid"])


@pytest.mark.parametrize("stratify", [None, "y"])
def test_groups_stay_together_and_shares_are_met(stratify: str | None, tmp_path: Path) -> None:
    rows = split(tmp_path / "out", {"stratify": stratify, "split_by": "who"})
    groups = {name: set(WHO[numbers]) for name, numbers in rows.items()}
    assert not groups["train"] & groups["valid"]
    assert abs(len(rows["valid"]) - 200) <= (3 if stratify else 0)
    if stratify:
        assert (np.abs(np.bincount(Y[rows["valid"]]) - 0.2 * np.bincount(Y)) <= 3).all()


@pytest.mark.parametrize(
    "rules", [{}, {"stratify": "y"}, {"split_by": "who"}, {"stratify": "y", "split_by": "who"}]
)
def test_the_test_set_is_the_same_whatever_is_held_out_for_validation(
    rules: dict[str, Any], tmp_path: Path
) -> None:
    found = [split(tmp_path / str(valid), rules, valid=valid, test=0.1) for valid in (0.0, 0.2)]
    for rows in found:
        assert (rows["test"] == found[0]["test"]).all()
        assert sorted(np.concatenate(list(rows.values()))) == list(range(ROWS))
        assert abs(len(rows["test"]) - 100) <= 3
        if "split_by" in rules:
            assert not {*WHO[rows["test"]]} & {*WHO[rows["train"]]}


def test_groups_and_columns_of_a_test_set_of_its_own_are_checked(tmp_path: Path) -> None:
    def own(*groups: str, **changed: Any) -> Any:
        return lambda: {"x": np.arange(2.0), "g": np.array(groups), **changed}

    def prepared(valid: Any, test: Any) -> Manifest:
        source = lambda: {"x": np.arange(4.0), "g": np.array(["a", "a", "b", "b"])}  # noqa: E731
        return prepare(source, str(tmp_path / "out"), partitions=1, split_by="g", valid=valid, test=test)

    for valid, test, said in (
        (own("c", "c"), own("b", "d"), "test data have rows of 'b' .*, and so have the training data"),
        (own("c", "d"), own("d", "e"), "validation data have rows of 'd' .*, and so have the test data"),
        (0.0, own("c", "d", z=np.arange(2)), "the test data"),
    ):
        with pytest.raises(DataError, match=said):
            prepared(valid, test)
    assert [part.rows for part in prepared(own("c", "c"), own("d", "e")).test] == [2]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=40), st.floats(0.05, 0.6))
def test_no_single_group_moved_and_no_pair_exchanged_would_come_nearer(
    sizes: list[int], share: float
) -> None:
    table, wanted = np.array(sizes)[:, None], max(1, round(share * sum(sizes)))
    chosen = choose_groups(table, np.array([wanted]))
    assert chosen.any()
    assert not chosen.all()
    far = abs(sum(table[chosen, 0]) - wanted)
    inside, outside = table[chosen, 0], table[~chosen, 0]
    change = [*(outside[:, None] - inside).ravel(), *outside, *(-inside if len(inside) > 1 else [])]
    left = [by for by in change if sum(inside) + by < sum(sizes)]
    assert all(abs(sum(inside) + by - wanted) >= far for by in left)


def test_weights_of_rows_become_the_last_column(tmp_path: Path) -> None:
    columns = {"w": np.arange(ROWS), **COLUMNS}
    keys = {"features": ["row"], "label": "y", "sample_weight": "w"}
    manifest = prepare(lambda: columns, str(tmp_path / "out"), partitions=1, seed=0, **keys)
    assert [(c.name, c.dtype) for c in manifest.columns] == [("features", "<f4"), ("y", "<i8"), ("w", "<f4")]
    assert (manifest.features, manifest.sample_weight) == (("row",), "w")


FEW = {"row": np.arange(4), "y": np.array([0, 0, 0, 1]), "g": np.array(["a", "a", "b", "b"])}
OWN = {"row": np.arange(2), "y": np.array([1, 7]), "g": np.array(["z", "b"])}
BAD: dict[str, tuple[dict[str, str], Any, str]] = {
    "unknown class": (
        {"stratify": "z"},
        FEW,
        "training data have no column 'z' for `stratify`: choices: g, row",
    ),
    "no class": ({"stratify": "y"}, {**FEW, "y": np.array([0, 1, np.nan, 1])}, "no value in 1 of 4 rows"),
    "one group": ({"split_by": "g"}, {**FEW, "g": np.ones(4)}, "none of 1 group can be spared"),
    "every class once": ({"stratify": "row"}, FEW, "class 0, 1, 2, ... has 1 row left; take a smaller share"),
    "new class": (
        {"stratify": "y"},
        {"train": FEW, "valid": OWN},
        "have 7 in column 'y', and the training data",
    ),
    "group in both": ({"split_by": "g"}, {"train": FEW, "valid": OWN}, "rows of 'b' in column 'g'"),
}


@pytest.mark.parametrize(("rules", "columns", "message"), BAD.values(), ids=BAD)
def test_an_impossible_split_is_refused(
    rules: dict[str, Any], columns: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        split(tmp_path / "out", rules, columns, valid=0.5, partitions=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.array([1, -1, 1, 1]), "has -1.0 in row 1 .*1 such value in all"),
        (np.zeros(4), "is 0 in every row"),
        (np.array(["a"] * 4), "column 'w' of the training data has text"),
    ],
)
def test_weights_that_weigh_nothing_are_refused(weights: Any, message: str, tmp_path: Path) -> None:
    source = {"x": np.ones(4), "w": weights}
    with pytest.raises(DataError, match=message):
        prepare(lambda: source, str(tmp_path / "out"), partitions=1, seed=0, sample_weight="w")


def test_two_forms_of_a_group_are_one_group() -> None:
    groups = np.array(["\u00e9", "e\u0301", "a"], object)
    rules = Preparation(split_by="g")
    keys = row_keys(rules, {"g": groups}, {})
    assert keys.groups is not None
    assert keys.groups.codes.tolist() == [1, 1, 0]
    with pytest.raises(DataError, match="1 group in both"):
        row_keys(rules, {"g": groups[:1]}, {"validation": {"g": groups[1:]}})


@pytest.mark.parametrize("stratify", [None, "y"])
@pytest.mark.parametrize("split_by", [None, "who"])
def test_folds_have_their_share_of_each_class_and_whole_groups(
    stratify: str | None, split_by: str | None
) -> None:
    rng = np.random.default_rng(0)
    columns = {"y": (rng.random(300) < 0.2).astype(np.int64), "who": rng.integers(0, 40, 300)}
    keys = row_keys(Preparation(stratify=stratify, split_by=split_by), columns, {})
    dealt = deal_rows(columns, {}, {"train": 6}, 1, keys, folds=3)
    assert [part.index for part in dealt] == list(range(6))
    folds = [np.concatenate([part.rows for part in dealt[2 * f : 2 * f + 2]]) for f in range(3)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(300))
    if split_by:
        groups = [set(columns["who"][rows].tolist()) for rows in folds]
        assert sum(map(len, groups)) == len(set.union(*groups)), "no group is in two folds"
        assert max(map(len, folds)) - min(map(len, folds)) <= 6
    else:
        assert {len(rows) for rows in folds} == {100}
    if stratify:
        counts = [int(columns["y"][rows].sum()) for rows in folds]
        assert max(counts) - min(counts) <= (4 if split_by else 1)


def test_folds_need_a_group_each() -> None:
    columns = {"who": np.array([0, 0, 1, 1])}
    keys = row_keys(Preparation(split_by="who"), columns, {})
    with pytest.raises(DataError, match="3 folds, and column 'who' has 2 groups"):
        deal_rows(columns, {}, {"train": 3}, 1, keys, folds=3)
