"""What the command itself does, whichever it is."""

from __future__ import annotations

import sys

import pytest

from cerebro_elastic.cli import main


class Interrupting:
    """Ctrl-C while the command's modules are imported, which takes a second."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "cerebro_elastic.cli.app":
            raise KeyboardInterrupt


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cerebro_elastic.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
