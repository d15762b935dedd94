"""Whether a machine has the code of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.system.source_code import code_digest, digests_in
from cerebro_elastic.system.version import __version__
from cerebro_elastic.worker.rendezvous import compatibility
from cerebro_elastic.worker.rendezvous.compatibility import (
    PACKAGE,
    changed_code,
    check_compatible,
)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    (tmp_path / "net.py").write_text("LAYERS = 3\n")
    code = {"net.py": code_digest(tmp_path / "net.py"), PACKAGE: compatibility.package_digest()}
    return Spec(Plan("r", 1, 1), {}, "", "", "", str(tmp_path), code, "", __version__)


def test_a_machine_with_the_same_code_is_a_node(spec: Spec) -> None:
    check_compatible(spec, package=True)
    assert changed_code(spec) == []


def test_another_file_of_the_users_is_named(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("LAYERS = 4\n")
    with pytest.raises(RunError, match=rf"another net\.py than {tmp_path}/net\.py on this machine: copy"):
        check_compatible(spec)


@pytest.mark.parametrize("named", ["base", "~/base", "of_package:model"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab.txt": b"a"}, r"without {}/vocab\.txt, and .*/vocab\.txt is on this machine: remove it"),
        ({"config.json": None}, r"with {}/config\.json, which is not on this machine"),
        ({"model-2.safetensors": b"1"}, r"with another {}/model-2\.safetensors than"),
        ({"config.json": b"{}", "README.txt": b"new", "readme.md": None}, ""),
    ],
)
def test_a_machine_with_other_files_in_a_folder_is_no_node(
    named: str,
    change: Mapping[str, bytes | None],
    words: str,
    spec: Spec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    folders = {"base": "base", "~/base": "home/base", "of_package:model": "site/of_package/model"}
    folder = tmp_path / folders[named]
    folder.mkdir(parents=True)
    (folder / "readme.md").touch()
    (folder / "config.json").write_text("{}")
    (tmp_path / "blob").write_text("2")
    (folder / "model-2.safetensors").symlink_to(tmp_path / "blob")
    files = digests_in({named: ("*.json", "*.safetensors", "vocab.txt")}, tmp_path)
    spec = replace(spec, code={**spec.code, **files})
    check_compatible(spec)
    for name, content in change.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
    if not words:
        check_compatible(spec)
        return
    with pytest.raises(RunError, match=words.format(named)):
        check_compatible(spec)


def test_other_code_of_the_package_under_the_same_version_is_refused(spec: Spec) -> None:
    other = replace(spec, code={**spec.code, PACKAGE: "0" * 64})
    with pytest.raises(RunError, match=f"other code of cerebro-elastic {__version__} .*the same commit"):
        check_compatible(other, package=True)
    assert changed_code(other) == [PACKAGE]
    check_compatible(other)


def test_a_run_that_noted_no_digest_of_the_package_is_joined(spec: Spec) -> None:
    check_compatible(replace(spec, code={}), package=True)


def test_each_module_of_the_package_and_its_plugins_counts() -> None:
    names = {name for name, _ in compatibility._modules()}
    assert {"cerebro_elastic/system/version.py", "cerebro_lightning/task.py"} <= names
