"""A fork server that stays spares the next command the imports of libraries, and nothing else changes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from cerebro_elastic.system.forkserver import SOCKET, STAYS, ForkServer, connect
from cerebro_elastic.system.forkserver.messages import FORK_OF, Request
from cerebro_elastic.system.forkserver.standing import TITLE
from support.waiting import wait_for

DEADLINE = 60.0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user's, which imports a library; both say when they are imported."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "site-packages").mkdir()
    note = "open('imports', 'a').write(__name__ + '\\n')\n"
    (tmp_path / "site-packages" / "library.py").write_text(f"{note}value = 1\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.py").write_text(f"{note}import library\n")
    (tmp_path / "site-packages" / "say.py").write_text("import sys, library; sys.exit(library.value)\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for process in standing(tmp_path, also_new=True):
        with suppress(psutil.NoSuchProcess):  # it was about to end
            process.kill()
            process.wait(DEADLINE)


def standing(project: Path, *, also_new: bool = False) -> list[psutil.Process]:
    """The servers that stay for commands of the project, also those that are about to start."""
    here = [each for each in psutil.process_iter(["cwd", "cmdline"]) if each.info["cwd"] == str(project)]
    stay = [each for each in here if also_new or each.info["cmdline"][:1] == [TITLE]]
    return [process for process in stay if process.pid != os.getpid()]


@contextmanager
def serving(project: Path) -> Iterator[Callable[[], int]]:
    """The server of a command; it gives a function that forks ``say``, and returns what that exits with."""
    others = {name: value for name, value in os.environ.items() if name != FORK_OF}
    path = os.pathsep.join([others.get("PYTHONPATH", ""), str(project / "site-packages")])
    env = {**others, SOCKET: STAYS, "PYTHONPATH": path}
    with ForkServer([], env) as server, open(os.devnull, "r+b") as nothing, open("log", "ab") as log:
        server.load(["mine"], str(project / "project"), log)
        request, files = Request(["say"], env, os.getcwd()), [nothing.fileno()] * 3
        yield lambda: connect(server.path, request, files).wait(DEADLINE)


def command(project: Path) -> int:
    with serving(project) as say:
        return say()


def imported(project: Path) -> list[str]:
    return (project / "imports").read_text().split()


def test_the_next_command_imports_the_users_files_alone(project: Path) -> None:
    assert command(project) == 1
    assert imported(project)[:2] == ["mine", "library"]
    wait_for(lambda: imported(project) == ["mine", "library", "library"], DEADLINE)
    assert command(project) == 1
    assert imported(project)[3:] == ["mine"]
    assert len(standing(project)) == 1


def test_a_library_that_has_changed_is_imported_by_the_command(project: Path) -> None:
    command(project)
    wait_for(lambda: len(imported(project)) == 3, DEADLINE)
    (project / "site-packages" / "library.py").write_text("value = 2\n")
    assert command(project) == 2


def test_a_command_outlives_the_server_that_it_came_from(project: Path) -> None:
    command(project)
    wait_for(lambda: len(imported(project)) == 3, DEADLINE)
    with serving(project) as say:
        (old,) = standing(project)
        old.kill()
        old.wait(DEADLINE)
        assert say() == 1


def test_a_command_whose_server_has_no_place_imports_for_itself(project: Path) -> None:
    (project / f"cerebro-stays-{os.getuid()}").write_text("")
    assert command(project) == 1
    assert standing(project, also_new=True) == []
