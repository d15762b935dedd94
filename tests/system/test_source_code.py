"""What users' code reads, beside itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.start import preflight
from cerebro_elastic.system.source_code import code_digest, imported_by


def test_what_python_cannot_parse_counts_by_its_bytes(tmp_path: Path) -> None:
    code = tmp_path / "my_code.py"
    code.write_text("x = " + "+".join(["1"] * 3_000))
    before = code_digest(code)
    code.write_text("x = " + "+".join(["1"] * 3_001))
    assert code_digest(code) != before
    assert imported_by(code) == frozenset()


@pytest.mark.usefixtures("imports_as_found")
def test_modules_that_are_imported_later_or_lie_elsewhere_are_code_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shared = tmp_path / "project", tmp_path / "shared"
    files = {
        root / "a_lazy_net.py": "import a_shared\ndef step():\n    from a_part import a_loss\n",
        root / "a_part" / "__init__.py": "def never():\n    from .................... import a_base\n"
        "    __import__('/tmp/x')\n",
        root / "a_part" / "a_loss.py": "from . import a_base\n",
        root / "a_part" / "a_base.py": "import importlib\nimportlib.import_module('a_named')\n",
        root / "a_named.py": "from a_starred import *\n",
        root / "a_starred.py": "",
        root / "another.py": "",
        shared / "a_shared.py": "",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(shared)
    import_object("a_lazy_net:step", root)
    code = {name for name in preflight.code_of(root) if str(tmp_path) in name or name[0] != "/"}
    own = {"a_lazy_net.py", "a_part/__init__.py", "a_part/a_loss.py", "a_part/a_base.py", "a_named.py"}
    own.add("a_starred.py")
    assert own <= code
    assert str(shared / "a_shared.py") in code
    assert "another.py" not in code
