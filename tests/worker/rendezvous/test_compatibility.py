"""Whether a machine has the code of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.system.source_code import code_digest
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
    with pytest.raises(RunError, match=r"another net\.py than the one in"):
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
