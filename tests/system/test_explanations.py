"""What people are shown of an exception of their code, and what the record keeps."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest

from cerebro_elastic import registry
from cerebro_elastic.registry import import_object
from cerebro_elastic.system.explanations import explain_error, explain_error_with_frames, shortened

MODULE = """
import json


def step():
    return json.loads("[")
"""


def raised(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.usefixtures("imports_as_found")
@pytest.mark.parametrize(("folder", "name"), [("project", "a_step.py"), ("shared", "PYTHONPATH/a_step.py")])
def test_the_short_story_has_the_users_line_and_the_whole_one_all(
    folder: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shared = tmp_path / "project", tmp_path / "shared"
    root.mkdir(), shared.mkdir()
    (tmp_path / folder / "a_step.py").write_text(MODULE)
    monkeypatch.setattr(registry, "_PYTHONPATH", [shared])
    monkeypatch.syspath_prepend(shared)
    error = raised(import_object("a_step:step", root))
    story = explain_error_with_frames(error, root)
    last = extract_tb(error.__traceback__)[-1]
    raised_at = f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno} in {last.name}: {last.line}"
    shown = [
        "JSONDecodeError: Expecting value: line 1 column 2 (char 1)",
        f'  {name}:6 in step: return json.loads("[")',
        f"  {raised_at}",
    ]
    assert shortened(story).splitlines() == explain_error(error, root).splitlines() == shown
    assert story.splitlines()[:3] == shown
    assert "json/scanner.py" in story.splitlines()[3] or "json/decoder.py" in story.splitlines()[3]
    reason = f"epoch 0, partition 1 failed alike on a, b: exception: {story}"
    assert shortened(reason).splitlines()[1:] == shown[1:]


class Speechless(Exception):
    def __str__(self) -> str:
        raise AttributeError("code")


@pytest.mark.usefixtures("imports_as_found")
def test_an_exception_has_its_cause_and_one_without_a_message_its_type(tmp_path: Path) -> None:
    raising = (
        "    try:\n        raise cause\n    except Exception as e:\n        raise ValueError('v') from e\n"
    )
    (tmp_path / "a_cause.py").write_text(f"def step(cause):\n{raising}")
    step = import_object("a_cause:step", tmp_path)
    assert explain_error(raised(lambda: step(KeyError("k"))), tmp_path).splitlines() == [
        "ValueError: v",
        "raised from KeyError: 'k'",
        "  a_cause.py:5 in step: raise ValueError('v') from e",
        "  a_cause.py:3 in step: raise cause",
    ]
    assert explain_error(Speechless(), tmp_path).endswith("its __str__ raises AttributeError")
