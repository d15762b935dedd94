"""The registry: built-ins, unknown names, missing extras, and users' modules with their faults."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic import registry
from cerebro_elastic.data.user_state import generator_states
from cerebro_elastic.errors import CerebroError, MissingExtra, TaskError
from cerebro_elastic.registry import install_extra, users_file, users_name

pytestmark = pytest.mark.usefixtures("imports_as_found")


def failure(reference: str, root: Path) -> str:
    with pytest.raises(TaskError) as caught:
        registry.import_object(reference, root)
    return str(caught.value)


def test_names_are_the_built_ins_and_the_entry_points() -> None:
    assert {"lightning", "torch"} <= set(registry.names("cerebro.tasks"))
    assert registry.names("cerebro.schedulers") == [
        "auto",
        "exact",
        "longest-remaining",
        "monte-carlo",
        "random",
        "target",
        "vector-rearrangement",
    ]


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group, table in registry.BUILT_IN.items() for name in table if name != "lightning"],
)
def test_every_built_in_loads(group: str, name: str) -> None:
    assert callable(registry.load(group, name))


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(
        CerebroError, match="did you mean 'random'\\? choices: auto, exact, longest-remaining"
    ):
        registry.load("cerebro.schedulers", "randm")


def test_another_packages_entry_point_and_a_missing_extra(tmp_path: Path) -> None:
    info = tmp_path / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[cerebro.search]\nmine = thing_mod:Mine\nlost = thing_mod:Lost\n"
        "needy = thing_needy:X\ngone = thing_no:X\n"
    )
    (tmp_path / "thing_mod.py").write_text("class Mine: pass\n")
    (tmp_path / "thing_needy.py").write_text("raise ModuleNotFoundError('no', name='lightning.pytorch')\n")
    sys.path.insert(0, str(tmp_path))
    assert {"grid", "mine"} <= set(registry.names("cerebro.search"))
    assert registry.load("cerebro.search", "mine").__name__ == "Mine"
    with pytest.raises(CerebroError, match="thing_mod:Lost, which does not exist"):
        registry.load("cerebro.search", "lost")
    with pytest.raises(CerebroError, match="thing_no:X, which cannot be imported"):
        registry.load("cerebro.search", "gone")
    assert "later" not in registry.names("cerebro.search")
    installed = tmp_path / "other-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[cerebro.search]\nlater = thing_mod:Mine\n")
    assert registry.load("cerebro.search", "later").__name__ == "Mine", "installed meanwhile"
    with pytest.raises(MissingExtra, match=re.escape(install_extra("lightning"))):
        registry.load("cerebro.search", "needy")


@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        ({"dir_info": {"editable": True}}, "-e '{}[search]'"),
        ({"dir_info": {}}, "'{}[search]'"),
        ({"archive_info": {}, "url": "file:///gone/a.whl"}, "'cmaes>=0.11' 'optuna<6,>=5' 'scipy>=1.13'"),
        (None, "'cmaes>=0.11' 'optuna<6,>=5' 'scipy>=1.13'"),
    ],
)
@pytest.mark.usefixtures("imports_as_found")
def test_an_extra_is_installed_from_where_the_package_came(
    origin: dict[str, Any] | None, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, source = tmp_path / "cerebro_elastic-0.2.0.dist-info", tmp_path / "from here"
    info.mkdir()
    source.mkdir()
    shutil.copy(Path(str(distribution("cerebro-elastic").locate_file(info.name))) / "METADATA", info)
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), **origin}))
    sys.path.insert(0, str(tmp_path))
    registry._installed_from.cache_clear()
    pip = f"{sys.executable} -m pip install "
    monkeypatch.setenv("PATH", "/nowhere")
    assert registry.install_extra("search") == pip + asked.format(source)
    monkeypatch.setattr(registry, "_ON_AN_INDEX", True)
    assert registry.install_extra("search") == f"{pip}'cerebro-elastic[search]'"
    registry._installed_from.cache_clear()


def test_packages_are_installed_by_the_pip_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = tmp_path / "pip"
    pip.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert registry.pip_install("a<2") == f"{sys.executable} -m pip install 'a<2'", (
        "another environment is active"
    )
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert registry.pip_install("a<2") == "pip install 'a<2'"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert registry.pip_install("a<2") == f"uv pip install --python {tmp_path}/python 'a<2'"


def test_users_modules_are_looked_for_in_the_root_first(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder / "pkg").mkdir(parents=True)
        (tmp_path / folder / "pkg" / f"only_{folder}.py").write_text(f"class Net:\n    value = {value}\n")
    assert registry.import_object("pkg.only_a:Net.value", tmp_path / "a") == 1
    assert sys.path[0] == str(tmp_path / "a")


def test_the_working_directory_is_looked_for_modules_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "of_root.py").write_text("import of_the_working_directory, numpy\nnet = numpy")
    (tmp_path / "of_the_working_directory.py").touch()
    (tmp_path / "numpy.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert registry.import_object("of_root:net", tmp_path / "root").ndarray


def test_what_a_users_file_draws_at_its_top_is_the_same_in_any_order_of_imports(tmp_path: Path) -> None:
    draws = "random.random(), float(numpy.random.rand()), float(torch.rand(()))"
    for name, others in (("first", ""), ("second", "import first\n")):
        (tmp_path / f"drawing_{name}.py").write_text(
            f"import random, numpy, torch\n{others.replace('first', 'drawing_first')}drawn = {draws}\n"
        )
    before = generator_states()
    second = registry.import_object("drawing_second:drawn", tmp_path)
    first = registry.import_object("drawing_first:drawn", tmp_path)
    del sys.modules["drawing_first"], sys.modules["drawing_second"]
    random.random()
    assert registry.import_object("drawing_first:drawn", tmp_path) == first
    assert registry.import_object("drawing_second:drawn", tmp_path) == second
    assert len({*first, *second}) == 6
    random.setstate(before[0])
    assert generator_states() == before


def test_a_missing_module_names_the_folder_and_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "digits_model.py").write_text("")
    message = failure("digit_model:Net", tmp_path)
    assert "no module 'digit_model' in" in message
    assert str(tmp_path) in message
    assert "did you mean 'digits_model'?" in message


def test_an_error_inside_the_module_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "bad_value.py").write_text("x = 1\ny = x / 0\n")
    message = failure("bad_value:Net", tmp_path)
    assert f"{tmp_path}/bad_value.py:2: ZeroDivisionError: division by zero" in message
    (tmp_path / "bad_syntax.py").write_text("x = 1\ndef f(:\n")
    assert f"{tmp_path}/bad_syntax.py:2: SyntaxError" in failure("bad_syntax:Net", tmp_path)
    (tmp_path / "bad_exit.py").write_text("import sys\nsys.exit(3)\n")
    assert f"{tmp_path}/bad_exit.py:2: SystemExit" in failure("bad_exit:Net", tmp_path)


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("class Net: pass\n")
    assert "the name 'json' is taken by" in failure("json:Net", tmp_path)


@pytest.mark.parametrize("reference", ["nets", "nets/digits:Net", "a:b:c", ":Net", "nets:"])
def test_malformed_references(reference: str, tmp_path: Path) -> None:
    assert "expected 'module:name'" in failure(reference, tmp_path)


def test_the_extras_are_those_of_the_package() -> None:
    named = {need[:3] for need in registry.extra_needs()}
    assert {("search", "optuna", "optuna"), ("examples", "scikit-learn", "sklearn")} <= named


def test_a_file_of_the_users_has_one_name_on_all_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, shared, library = (tmp_path / name for name in ("project", "shared", "lib/site-packages"))
    for folder in (project, shared, library):
        folder.mkdir(parents=True)
        (folder / f"in_{folder.name[:4]}.py").write_text("")
    (project / "link.py").symlink_to(shared / "in_shar.py")
    (project / "linked_library.py").symlink_to(library / "in_site.py")
    with zipfile.ZipFile(project / "helpers.zip", "w") as archive:
        archive.writestr("helpers/__init__.py", "")
    monkeypatch.setattr(registry, "_PYTHONPATH", [shared, library])
    named = {
        project / "in_proj.py": "in_proj.py",
        project / "link.py": "link.py",
        shared / "in_shar.py": "PYTHONPATH/in_shar.py",
        project / "helpers.zip" / "helpers" / "__init__.py": "helpers.zip",
        project / "linked_library.py": None,
        library / "in_site.py": None,
        project / "gone.py": None,
        Path(registry.__file__): None,
        Path(os.__file__): None,
    }
    assert {file: users_name(file, project) for file in named} == named
    (tmp_path / "linked").symlink_to(project)
    assert users_name(project / "in_proj.py", tmp_path / "linked") == "in_proj.py"
    for file, name in named.items():
        if name is not None and file.is_file():
            assert users_file(name, project) == file
    assert users_file("PYTHONPATH/gone.py", project) is None
