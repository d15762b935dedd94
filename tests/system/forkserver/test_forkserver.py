"""Processes that are forked behave like those that are started by their command, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cerebro_elastic.system.forkserver import SOCKET, ForkedProcess, ForkServer, connect, start
from cerebro_elastic.system.forkserver.client import Refused
from cerebro_elastic.system.forkserver.messages import FORK_OF, Request
from cerebro_elastic.system.process import PYTHON, is_alive
from support.waiting import SOON, wait_for

Run = Callable[..., ForkedProcess]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(["json.tool", "no_such_module"]) as server:
        yield server


@pytest.fixture
def run(server: ForkServer, folder: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    """Write a module and have it run by a fork; what it prints is in ``output``."""
    with (folder / "output").open("wb") as out, open(os.devnull) as nothing:

        def start(code: str, *arguments: str, **env: str) -> ForkedProcess:
            name = f"module_{abs(hash(request.node.name)) % 10**8}"
            (folder / f"{name}.py").write_text(code)
            environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **env}
            files = [nothing.fileno(), out.fileno(), out.fileno()]
            process = connect(server.path, Request([name, *arguments], environment, os.getcwd()), files)
            started.append(process)
            return process

        started: list[ForkedProcess] = []
        yield start
        for process in started:
            process.kill()
            process.wait(SOON)


def output(folder: Path) -> str:
    return (folder / "output").read_text()


def test_it_is_a_program_of_its_own(run: Run, folder: Path) -> None:
    code = """
import os, sys, json, random
values = [__name__, sys.argv[1:], os.environ["GREETING"], "HOME" in os.environ, os.getpid(), os.getsid(0)]
print(json.dumps(values))
print(random.random(), file=sys.stderr)
"""
    process = run(code, "a", "b c", GREETING="hello")
    assert process.wait(SOON) == 0
    said = output(folder).splitlines()
    assert said[0] == f'["__main__", ["a", "b c"], "hello", false, {process.pid}, {process.pid}]'
    again = run(code, GREETING="hello")
    assert again.wait(SOON) == 0
    assert output(folder).splitlines()[3] != said[1], "each has random numbers of its own"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('a message')", 1),
        ("raise SystemExit(257)", 1),
        ("raise ValueError('wrong')", 1),
        ("import os; os._exit(3)", 3),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_it_ends_as_a_program_ends(run: Run, code: str, status: int) -> None:
    process = run(code)
    assert process.wait(SOON) == status
    assert process.poll() == status
    assert process.wait() == status


def test_signals_are_passed_on(run: Run, server: ForkServer, folder: Path) -> None:
    code = """
import signal, sys, time
def asked(number, frame):
    print("asked", number)
    sys.exit(5)
signal.signal(signal.SIGTERM, asked)
print("ready")
time.sleep(60)
"""
    process = run(code)
    wait_for(lambda: "ready" in output(folder))
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    for pid in (server.pid, psutil.Process(process.pid).ppid()):  # Slurm signals all processes of a job
        os.kill(pid, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SOON) == 5
    assert "asked 15" in output(folder)
    process.send_signal(signal.SIGTERM)  # nothing happens


LEAVING = """
import os, subprocess, sys, time
os.environ.clear()
daemon = ["import os, sys, time", "if os.fork(): sys.exit()", "os.setsid()", "if os.fork(): sys.exit()"]
daemon += ["print(os.getpid(), flush=True)", "time.sleep(60)"]
command = [sys.executable, "-c", os.linesep.join(daemon)]
daemon = subprocess.Popen(command, env={}, stdout=subprocess.PIPE, text=True)
print(daemon.stdout.readline(), "left", flush=True)
"""


@pytest.mark.parametrize("ending", ["", "time.sleep(60)"], ids=["it ends", "it is killed"])
def test_nothing_that_it_starts_outlives_it(run: Run, folder: Path, ending: str) -> None:
    process = run(LEAVING + ending)
    wait_for(lambda: len(output(folder).split()) == 2)
    (daemon,) = [int(word) for word in output(folder).split() if word.isdecimal()]
    if ending:
        assert is_alive(daemon)
        process.kill()
    process.wait(SOON)
    wait_for(lambda: not is_alive(daemon))


@pytest.mark.parametrize("forked", [True, False])
def test_a_file_in_the_working_directory_does_not_replace_the_standard_library(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    for name in ("random", "types", "queue", "json", "tempfile"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the standard library')")
    (folder / "careful.py").write_text("import json, queue, random, sys, tempfile, types\nsys.exit(7)")
    monkeypatch.chdir(tmp_path)
    with ForkServer([], env={**os.environ, "PYTHONPATH": ""}) as server:
        env = {**os.environ, "PYTHONPATH": str(folder), SOCKET: server.path}
        if not forked:
            del env[SOCKET]
        process = start([*PYTHON, "-m", "careful"], env, stdin=subprocess.DEVNULL, stdout=1, stderr=2)
        assert isinstance(process, ForkedProcess) == forked
        assert process.wait(SOON) == 7


def test_it_ends_with_the_process_that_started_it(server: ForkServer, folder: Path) -> None:
    code = f"""
import os, sys, time
from cerebro_elastic.system.forkserver import SOCKET, start
from cerebro_elastic.system.process import PYTHON
command = [*PYTHON, "-m", "sleeping"]
process = start(command, {{**os.environ, SOCKET: {server.path!r}}}, stdin=0, stdout=1, stderr=2)
print(process.pid, flush=True)
time.sleep(60)
"""
    (folder / "sleeping.py").write_text("import time; time.sleep(60)")
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)])
    client = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert client.stdout is not None
    with client.stdout as said:
        pid = int(said.readline())
    assert is_alive(pid)
    client.kill()
    client.wait()
    wait_for(lambda: not is_alive(pid))


def test_all_end_with_the_server(folder: Path) -> None:
    (folder / "sleeping.py").write_text("import time; time.sleep(60)")
    with ForkServer([]) as server, open(os.devnull) as nothing:
        request, files = Request(["sleeping"], {"PYTHONPATH": str(folder)}, "/"), [nothing.fileno(), 1, 2]
        path = server.path
        process = connect(path, request, files)
        pid = process.pid
        server.close()
        assert process.wait(SOON) == -signal.SIGKILL
        wait_for(lambda: not is_alive(pid))
        with pytest.raises(Refused, match="does not answer"):
            connect(path, request, files)


def test_an_import_that_starts_threads_forbids_forks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)]))
    with (
        ForkServer(["threaded"]) as server,
        pytest.raises(Refused, match="an import has started 1 threads: python"),
    ):
        connect(server.path, Request(["json.tool"], {}, "/"), [0, 1, 2])


def test_a_command_stands_in_for_its_fork(server: ForkServer, folder: Path) -> None:
    """As torchrun starts ranks: by a command, which is signalled, and killed."""
    (folder / "standing.py").write_text(
        "import os, sys\n"
        "from cerebro_elastic.system.forkserver import SOCKET, stand_in\n"
        "if path := os.environ.pop(SOCKET, None):\n"
        "    sys.exit(stand_in(path, ['standing', *sys.argv[1:]]))\n"
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"  # what is printed asks for signals
        "print(os.getpid(), os.getppid(), flush=True)\n"
        "if sys.argv[1] == 'segfault': os.kill(os.getpid(), signal.SIGSEGV)\n"
        "time.sleep(60)\n"
    )
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)])
    env = {**os.environ, "PYTHONPATH": path, SOCKET: server.path}

    def start(argument: str) -> tuple[subprocess.Popen[str], int]:
        command = subprocess.Popen(
            [sys.executable, "-m", "standing", argument], env=env, stdout=subprocess.PIPE, text=True
        )
        assert command.stdout is not None
        with command.stdout as said:
            pid = int(said.readline().split()[0])
        assert pid != command.pid
        return command, pid

    command, pid = start("sleep")
    command.terminate()
    assert command.wait(SOON) == 9
    command, pid = start("sleep")
    command.kill()
    assert command.wait(SOON) == -signal.SIGKILL
    wait_for(lambda: not is_alive(pid))
    command, pid = start("segfault")
    assert command.wait(SOON) == -signal.SIGSEGV


@pytest.mark.parametrize("forked", [True, False], ids=["fork", "command"])
def test_the_processes_of_multiprocessing_are_forks_of_its_server(
    server: ForkServer, folder: Path, forked: bool
) -> None:
    """Queues work, the exit status is known, and none outlives whoever has started it."""
    (folder / "working.py").write_text(
        "import os, sys\n"
        "def double(numbers, doubles):\n"
        "    while (number := numbers.get()) is not None:\n"
        "        doubles.put((number * 2, sys.stdin.read(), os.getpid(), 'json.tool' in sys.modules))\n"
        "    sys.exit(3)\n"
    )
    (folder / "starting.py").write_text(
        "import os, sys, working\n"
        "from cerebro_elastic.system.forkserver.context import ForkServerContext\n"
        "if __name__ == '__main__':\n"
        "    context = ForkServerContext()\n"
        "    numbers, doubles = context.Queue(), context.Queue()\n"
        "    made = [context.Process(target=working.double, args=(numbers, doubles)) for _ in range(2)]\n"
        "    for process in made: process.start()\n"
        "    for number in (4, None): numbers.put(number)\n"
        "    made[0].join(1e-3)\n"
        "    print(*doubles.get(), flush=True)\n"
        "    ended = lambda: [process for process in made if not process.is_alive()]\n"
        "    while not ended(): pass\n"
        "    (first,) = ended()\n"
        "    (second,) = [process for process in made if process is not first]\n"
        "    print(first.exitcode, second.pid, flush=True)\n"
        "    if sys.argv[1] == 'kill': os.kill(os.getpid(), 9)\n"
        "    second.terminate()\n"
        "    second.join()\n"
        "    print(second.exitcode, flush=True)\n"
    )
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)])
    others = {name: value for name, value in os.environ.items() if name not in (SOCKET, FORK_OF)}
    env = {**others, "PYTHONPATH": path}
    for ending in ("wait", "kill"):
        with open(folder / "said", "w+b") as said:
            process = start(
                [*PYTHON, "-m", "starting", ending],
                {**env, SOCKET: server.path} if forked else env,
                stdin=subprocess.DEVNULL, stdout=said.fileno(), stderr=2,
            )  # fmt: skip
            assert process.wait(SOON) == {"wait": 0, "kill": -signal.SIGKILL}[ending]
            said.seek(0)
            (double, _, imported), (status, second), *rest = [
                line.split() for line in said.read().decode().splitlines()
            ]
        assert (double, imported, status) == ("8", str(forked), "3")
        assert rest == ([["-15"]] if ending == "wait" else [])
        if ending == "wait" or forked:
            wait_for(lambda second=second: not is_alive(int(second)))
        else:
            with suppress(ProcessLookupError):  # one that had not begun finds no queue and has ended
                os.kill(int(second), signal.SIGKILL)


def test_its_exit_status_may_request_a_new_fork(run: Run, folder: Path) -> None:
    code = f"""
import os, sys
count = os.path.getsize({str(folder / "times")!r})
open({str(folder / "times")!r}, "a").write("x")
print("pid", os.getpid())
sys.exit(75 if count < 2 else 6)
"""
    (folder / "times").write_text("")
    process = run(code)
    assert process.wait(SOON) == 6
    assert len(set(output(folder).split()) - {"pid"}) == 3
