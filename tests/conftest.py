"""One etcd for all tests, and a check that no test leaves anything behind."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

gc.disable()  # until all is imported: collections would take a quarter of the time, and find nothing

import fsspec.config
import pytest
import requests
import torch
from hypothesis import HealthCheck, settings
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from cerebro_elastic.cli import main
from cerebro_elastic.runs.start.agents import TORCHRUN_LOGS
from cerebro_elastic.runs.start.preflight import VARIABLE as CHECK
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.system.forkserver import SOCKET, ForkServer
from cerebro_elastic.system.forkserver.messages import FORK_OF
from cerebro_elastic.system.process import OF_TRAINING
from cerebro_elastic.system.run_key import VARIABLE
from cerebro_elastic.training.parallel.rank_pool import Ranks
from support.commands import Cerebro, Said
from support.proxy import BadProxy
from support.waiting import SOON

# A machine that is full makes examples slow, which is no failure of theirs.
settings.register_profile(
    "any-machine", settings(), deadline=None, suppress_health_check=(HealthCheck.too_slow,)
)
settings.load_profile("any-machine")

_SHARED = "fork server"
_SERVER = pytest.StashKey[tuple[ExitStack, str]]()
# Started once by multiprocessing for the life of the process.
_STAYING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
# The loop of fsspec's asynchronous file systems, and its helpers; that of jupyter_client.
_STAYING_THREADS = ("fsspecIO", "asyncio_", "MainThread - runner")
# Set once by pytest, and by torch and lightning when something is first imported.
_IMPORTS = (
    "torch",
    "lightning",
    "cerebro_lightning",
    "deepspeed",
    "sklearn.datasets",
    "torch.distributed.run",
    "cerebro_elastic.worker.rank",
    "cerebro_elastic.runs.start.preflight",
)
_NOT_OURS = (
    "PYTEST_CURRENT_TEST",
    "TORCHINDUCTOR_CACHE_DIR",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "RAY_CLIENT_MODE",
    "TOKENIZERS_PARALLELISM",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all tests of a process: playwright starts once in a thread."""
    from support.browser import opened_browser  # playwright takes a while to import

    with opened_browser() as browser:
        yield browser


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start torchrun come first: with several workers (`--no-loadscope-reorder`) no long one is
    begun when the others have nothing left to do."""
    slow = {item.path for item in items if item.get_closest_marker("cluster")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def _torchruns_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where agents that no run of ours starts leave the folders that torchrun makes each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TORCHRUN_LOGS, str(tmp_path_factory.mktemp("torchrun")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a rank, here and in processes that tests start. There are more workers than cores, and threads
    that wait for each other compute."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def pytest_collection_finish() -> None:
    """What was imported stays: collections need not look through its million objects, nor copy their pages in
    forks."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> Iterator[None]:
    """A shell's background processes ignore Ctrl-C, and so would all processes that the tests start."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _runs() -> Iterator[None]:
    """All runs in the shared etcd, which anybody may write to, are signed with one key. The background check
    of runs is off: it would find what a test plants, or not, depending on time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, secrets.token_hex(32))
        patch.setenv(CHECK, "off")
        yield


@pytest.fixture(scope="session", autouse=True)
def _fork_server(request: pytest.FixtureRequest, _support: None) -> Iterator[None]:
    """Processes that train, their agents, and processes that make batches are forks of a process that has
    imported their modules."""
    shared: str | None = getattr(request.config, "workerinput", {}).get(_SHARED)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if shared is None and any(item.get_closest_marker("cluster") for item in request.session.items):
            shared = stack.enter_context(_server()).path
        for name in (SOCKET, FORK_OF) if shared is not None else ():
            patch.setenv(name, shared)
        yield


@contextmanager
def _server() -> Iterator[ForkServer]:
    """A fork server for tests, which must end all processes that they start."""
    with ForkServer(_IMPORTS, env={**os.environ, **OF_TRAINING}) as server:
        yield server
        _wait_until_empty(lambda: [f"fork {pid}" for pid in _children(server.pid)])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """With several workers (pytest-xdist) one fork server is for all: its imports take as long as those of a
    worker."""
    if _SERVER not in node.config.stash:
        stack = ExitStack()
        node.config.stash[_SERVER] = stack, stack.enter_context(_server()).path
    node.workerinput[_SHARED] = node.config.stash[_SERVER][1]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """When no worker has tests left, and each still has the forks that it forgot: they end with it."""
    stack, _ = session.config.stash.get(_SERVER, (ExitStack(), ""))
    stack.close()


@pytest.fixture(scope="session", autouse=True)
def _support() -> Iterator[None]:
    """Processes that tests start can import ``tests/support``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEtcd]:
    """A real etcd on loopback, shared by all tests: keep to keys under ``store_prefix``."""
    with EmbeddedEtcd(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def ranks(_fork_server: None) -> Iterator[Ranks]:
    """Two rank processes for all tests: to import torch and deepspeed takes seconds. Each test leaves both
    alive and without a group."""
    with Ranks(2, seconds=120.0) as two:
        yield two


@pytest.fixture(scope="session")
def clean_process(_fork_server: None) -> Iterator[Ranks]:
    """A process as of ``cerebro check``, whose forks train: it has imported what a node has, and not the
    11,000 modules of all tests. Each fork looks into those for what users' code has left there."""
    with Ranks(1, seconds=120.0) as one:
        yield one


@pytest.fixture
def store_prefix() -> str:
    """A prefix of keys for one test alone."""
    return f"/test/{uuid.uuid4().hex}/"


@pytest.fixture
def cerebro(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cerebro:
    """``cerebro("run", "recipe.yaml")``; a traceback fails the test."""

    def type_(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["cerebro", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, out, err)

    return type_


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[BadProxy]:
    """An S3 server on loopback that knows no credentials and takes any, behind a proxy. One endpoint for all
    tests, so that they can share s3fs's client, which takes most of a second to make."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with BadProxy(server.get_host_and_port()[1]) as proxy:
        yield proxy
    S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def s3(_s3_server: BadProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadProxy]:
    """The proxy to which s3:// URLs lead in this test; the bucket ``bucket`` is there, and empty."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", _s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # As a user would set it; our own tries are enough to wait for.
    client = {"read_timeout": 2.0, "retries": {"total_max_attempts": 1}}
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": client})
    server = f"http://127.0.0.1:{_s3_server.target}"
    requests.post(f"{server}/moto-api/reset", timeout=60)
    requests.put(f"{server}/bucket", timeout=60)
    yield _s3_server
    _s3_server.reset()


@pytest.fixture
def imports_as_found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the users' modules that a test has written and imported. (Those of packages stay: torch does
    not survive a second import.)"""
    path, ours = list(sys.path), str(tmp_path_factory.getbasetemp().resolve())
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(ours):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """Fail a test that leaves a thread, a child process or a changed environment behind."""
    threads, children, env = set(threading.enumerate()), _children(), _environment()
    yield
    _wait_until_empty(lambda: _left_over(threads, children))
    changed = {name for name, _ in env.items() ^ _environment().items()}
    assert not changed, f"the test changed environment variables: {sorted(changed)}"


def _wait_until_empty(left_over: Callable[[], list[str]]) -> None:
    deadline = time.monotonic() + SOON
    while (left := left_over()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"the tests left behind: {', '.join(left)}"


def _left_over(threads: set[threading.Thread], children: set[int]) -> list[str]:
    return [
        *(
            f"thread {thread.name!r}"
            for thread in set(threading.enumerate()) - threads
            if not thread.name.startswith(_STAYING_THREADS)
        ),
        *(f"process {pid} ({_command(pid)})" for pid in _children() - children if not _stays(pid)),
    ]


def _children(parent: int | str = "self") -> set[int]:
    """The ids of a process's children; none where there is no /proc."""
    children: set[int] = set()
    threads = f"/proc/{parent}/task"
    for thread in os.listdir(threads) if os.path.isdir(threads) else ():
        # One that has ended in between has no children.
        with suppress(FileNotFoundError, ProcessLookupError), open(f"{threads}/{thread}/children") as file:
            children.update(map(int, file.read().split()))
    return children


def _stays(pid: int) -> bool:
    return any(name in _command(pid) for name in _STAYING)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "ended"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
