"""`features`, `label`, `columns`, `encode`: the columns that a table becomes, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import DataError
from support.prepared import prepare

IRIS = """\
id,length,width,leaves,species
900000001,5.1,3.5,3,setosa
900000002,7.0,3.2,4,versicolor
900000003,6.3,3.3,5,virginica
900000004,4.9,3.0,3,setosa
"""


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    (tmp_path / "iris.csv").write_text(IRIS)
    return tmp_path / "iris.csv"


def prepared(source: Any, folder: Path, **selection: Any) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """The one partition's columns, its rows in the order of the source, and the manifest."""
    url = str(folder / "out")
    manifest = prepare(source, url, partitions=1, seed=0, **selection)
    assert read_manifest(url) == manifest
    files = zip(manifest.columns, manifest.train[0].files, strict=True)
    return {column.name: np.load(folder / "out" / file.path) for column, file in files}, manifest


def test_features_and_label_are_one_matrix_and_one_vector(iris: Path) -> None:
    columns, manifest = prepared(
        iris, iris.parent, features=["width", "length"], label="species", encode=["species"]
    )
    assert list(columns) == ["features", "species"]
    assert {name: (c.dtype.str, c.shape) for name, c in columns.items()} == {
        "features": ("<f4", (4, 2)),
        "species": ("<i8", (4,)),
    }
    order = np.argsort(columns["features"][:, 1])
    np.testing.assert_array_equal(
        columns["features"][order], np.array([[3.0, 4.9], [3.5, 5.1], [3.3, 6.3], [3.2, 7.0]], "f4")
    )
    assert columns["species"][order].tolist() == [0, 0, 2, 1]
    assert manifest.vocabulary == {"species": ["setosa", "versicolor", "virginica"]}
    assert manifest.features == ("width", "length")


def test_a_label_of_words_becomes_codes(iris: Path) -> None:
    columns, manifest = prepared(iris, iris.parent, features=["width"], label="species")
    assert sorted(columns["species"].tolist()) == [0, 0, 1, 2]
    assert manifest.vocabulary == {"species": ["setosa", "versicolor", "virginica"]}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([*map(str, range(58)), "?"], r"'y' of the training data has numbers, but '\?' in 1 of 59 rows"),
        (["1,5", "2,5", "3"], "has numbers, but '1,5', '2,5' in 2 of 3 rows.*or name it in `encode`"),
        (["12 %", "3%"], "has numbers, but '12 %', '3%'"),
    ],
)
def test_a_label_of_numbers_with_an_odd_text_is_no_class(
    tmp_path: Path, labels: list[str], message: str
) -> None:
    source = {"x": np.arange(len(labels)), "y": np.array(labels, object)}
    with pytest.raises(DataError, match=message):
        prepared(lambda: source, tmp_path, label="y")
    _, manifest = prepared(lambda: source, tmp_path, label="y", encode=["y"])
    assert manifest.vocabulary == {"y": sorted(set(labels))}


@pytest.mark.parametrize("other", ["cat ", "c\u200bat", "\uff43at", "cat\u00a0"])
def test_words_that_look_alike_are_refused(tmp_path: Path, other: str) -> None:
    source = {"x": np.arange(3), "y": ["cat", "dog", other]}
    for selection in ({"label": "y"}, {"encode": ["y"]}):
        with pytest.raises(DataError, match=r"column 'y' of the training data has .* which look alike"):
            prepared(lambda: source, tmp_path, **selection)


def test_with_a_label_alone_all_other_columns_are_features(iris: Path) -> None:
    _, manifest = prepared(
        iris, iris.parent, columns=["length", "leaves", "species"], label="leaves", encode=["species"]
    )
    assert manifest.features == ("length", "species")


def test_vectors_join_the_matrix(tmp_path: Path) -> None:
    def load() -> dict[str, Any]:
        return {
            "a": np.arange(6).reshape(3, 2),
            "b": np.array([True, False, True]),
            "y": np.array([0.5, 1, 2]),
        }

    columns, manifest = prepared(load, tmp_path, label="y")
    assert manifest.features == ("a[0]", "a[1]", "b")
    assert columns["y"].dtype == np.float32
    assert sorted(columns["features"].tolist()) == [[0, 1, 1], [2, 3, 0], [4, 5, 1]]


def test_validation_data_have_the_codes_of_the_training_data(iris: Path) -> None:
    valid = iris.with_name("valid.csv")
    valid.write_text("id,length,width,leaves,species\n1,5,3,3,virginica\n")
    keys = {"features": ["length"], "label": "species", "encode": ["species"]}
    url = str(iris.parent / "out")
    manifest = prepare(iris, url, partitions=1, seed=0, valid=str(valid), **keys)
    assert np.load(Path(url) / manifest.valid[0].files[1].path).tolist() == [2]
    valid.write_text("id,length,width,leaves,species\n1,5,3,3,virginca\n")
    with pytest.raises(DataError, match=r"validation data has 'virginca' in 1 row.*did you mean 'virginica'"):
        prepare(iris, f"{url}2", partitions=1, seed=0, valid=str(valid), **keys)


def test_integers_and_booleans_are_encoded_too(tmp_path: Path) -> None:
    def load() -> dict[str, Any]:
        return {"x": np.array([True, False, True]), "y": np.array([30, 10, 20])}

    columns, manifest = prepared(load, tmp_path, encode=["x", "y"])
    assert manifest.vocabulary == {"x": [False, True], "y": [10, 20, 30]}
    assert sorted(zip(columns["x"].tolist(), columns["y"].tolist(), strict=True)) == [(0, 0), (1, 1), (1, 2)]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown feature": ({"features": ["lenght"]}, "'lenght', which is no column: did you mean 'length'"),
    "text feature": ({"label": "leaves"}, "column 'species' .* has text|'id' .* whole numbers above"),
    "identifier": ({"features": ["id"]}, "column 'id' .* whole numbers above 16777216.*identifier"),
    "floats": ({"encode": ["width"]}, "column 'width' .* has values of type float"),
    "label as feature": (
        {"features": ["leaves"], "label": "leaves"},
        "label 'leaves' is among the `features`",
    ),
}


@pytest.mark.parametrize(("selection", "message"), BAD.values(), ids=BAD)
def test_an_impossible_selection_is_refused(selection: dict[str, Any], message: str, iris: Path) -> None:
    with pytest.raises(DataError, match=message):
        prepared(iris, iris.parent, **selection)


def test_an_index_of_pandas_is_no_feature_by_default(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(",a,y\n0,0.5,1\n1,0.25,0\n")
    with pytest.raises(DataError, match="column '' seems to be an index that pandas has written"):
        prepared(tmp_path / "in.csv", tmp_path, label="y")
    assert prepared(tmp_path / "in.csv", tmp_path, label="y", features=["a"])[1].features == ("a",)


def test_values_beyond_float32_are_named(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,y\n1e300,1\n2,0\n")
    with pytest.raises(
        DataError, match=r"column 'a' of the training data holds infinite values in 1 of 2 rows"
    ):
        prepared(tmp_path / "in.csv", tmp_path, label="y")


def test_a_missing_category_is_no_category(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,y\n1,red\n2,\n3,NA\n4,blue\n")
    with pytest.raises(DataError, match=r"column 'y' .* has no value in 2 of 4 rows \(1, 2; "):
        prepared(tmp_path / "in.csv", tmp_path, label="y", encode=["y"])
