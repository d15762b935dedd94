"""What a config sets in its process reaches no other config, and goes with it."""

from __future__ import annotations

import builtins
import decimal
import gc
import importlib
import locale
import logging
import math
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.data import DataLoader

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training import library_patches, process_settings
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import TaskState, UnitJob, UnitResult

HERE, ME = Path(__file__).parent, Path(__file__).stem
TORCH: Any = torch
MKLDNN: Any = torch.backends.mkldnn


def doubled(self: nn.Linear, input: Tensor) -> Tensor:
    return 2 * nn.functional.linear(input, self.weight, self.bias)


def tf32() -> None:
    MKLDNN.matmul.fp32_precision = "bf16"


def trap() -> None:
    decimal.getcontext().traps[decimal.Inexact] = True


def own_globals() -> None:
    register_module_forward_hook(lambda *_: None)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "default device": (lambda: torch.set_default_device("cpu:0"), torch.get_default_device),
    "matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        torch.get_float32_matmul_precision,
    ),
    "precision of mkldnn": (tf32, lambda: MKLDNN.matmul.fp32_precision),
    "mkldnn": (
        lambda: setattr(torch.backends.mkldnn, "enabled", False),
        lambda: torch.backends.mkldnn.enabled,
    ),
    "cudnn": (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: torch.backends.cudnn.benchmark,
    ),
    "sdp": (lambda: torch.backends.cuda.enable_flash_sdp(False), torch.backends.cuda.flash_sdp_enabled),
    "fast path": (
        lambda: torch.backends.mha.set_fastpath_enabled(False),
        torch.backends.mha.get_fastpath_enabled,
    ),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.are_deterministic_algorithms_enabled,
    ),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.is_autocast_enabled("cpu")),
    "denormal": (
        lambda: torch.set_flush_denormal(True),
        lambda: repr(float(torch.tensor(1e-310, dtype=torch.float64) / 2)),
    ),
    "threads": (lambda: torch.set_num_threads(3), torch.get_num_threads),
    "torch's print options": (
        lambda: TORCH.set_printoptions(precision=1),
        lambda: repr(torch.tensor(1.23456)),
    ),
    "sharing strategy": (
        lambda: TORCH.multiprocessing.set_sharing_strategy("file_system"),
        torch.multiprocessing.get_sharing_strategy,
    ),
    "global hooks": (own_globals, lambda: len(nn.modules.module._global_forward_hooks)),
    "environment": (lambda: os.environ.update(PLANTED="1", HOME="/"), lambda: dict(os.environ)),
    "environment taken away": (lambda: os.environ.pop("HOME"), lambda: dict(os.environ)),
    "working directory": (lambda: os.chdir("/"), os.getcwd),
    "umask": (lambda: os.umask(0o077), lambda: process_settings._first_mask()),
    "path": (lambda: sys.path.insert(0, "/planted"), lambda: list(sys.path)),
    "recursion limit": (lambda: sys.setrecursionlimit(2345), sys.getrecursionlimit),
    "a signal": (
        lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGUSR1),
    ),
    "filters of warnings": (lambda: warnings.simplefilter("error"), lambda: list(warnings.filters)),
    "captured warnings": (lambda: logging.captureWarnings(True), lambda: warnings.showwarning),
    "logging level": (lambda: logging.getLogger().setLevel(1), lambda: logging.root.level),
    "logging disabled": (lambda: logging.disable(50), lambda: logging.root.manager.disable),
    "numpy's errors": (lambda: np.seterr(all="raise"), np.geterr),
    "numpy's print options": (lambda: np.set_printoptions(precision=1), lambda: repr(np.array([1.23456]))),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C"), lambda: locale.setlocale(locale.LC_ALL)),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 5), lambda: decimal.getcontext().prec),
    "traps of decimal": (trap, lambda: decimal.getcontext().traps[decimal.Inexact]),
    "gc": (lambda: gc.set_threshold(50, 5, 5), gc.get_threshold),
    "no gc": (gc.disable, gc.isenabled),
    "timeout of sockets": (lambda: socket.setdefaulttimeout(3.5), socket.getdefaulttimeout),
    "start method": (
        lambda: multiprocessing.set_start_method("spawn", force=True),
        lambda: multiprocessing.get_start_method(allow_none=True),
    ),
    "output": (lambda: setattr(sys, "stdout", sys.stderr), lambda: sys.stdout),
    "the compiler": (
        lambda: setattr(torch._dynamo.config, "recompile_limit", 3),
        lambda: torch._dynamo.config.recompile_limit,
    ),
    "a value of the compiler that is a dict": (
        lambda: setattr(torch._dynamo.config, "skipfiles_inline_module_allowlist", {math: 1}),
        lambda: torch._dynamo.config.skipfiles_inline_module_allowlist,
    ),
    "a patched class": (lambda: setattr(nn.Linear, "forward", doubled), lambda: nn.Linear.forward),
    "a patched base": (
        lambda: setattr(nn.Module, "train", lambda self, *_: self),
        lambda: nn.Module.train,
    ),
    "an added method": (lambda: setattr(nn.Linear, "__call__", doubled), lambda: nn.Linear.__call__),
    "a class without a method": (lambda: delattr(nn.Linear, "extra_repr"), lambda: nn.Linear.extra_repr),
    "a borrowed method": (lambda: setattr(nn.ReLU, "forward", nn.GELU.forward), lambda: nn.ReLU.forward),
    "an optimizer's class": (
        lambda: setattr(torch.optim.SGD, "zero_grad", print),
        lambda: torch.optim.SGD.zero_grad,
    ),
    "a tensor's method": (lambda: setattr(Tensor, "backward", print), lambda: Tensor.backward),
    "a loader's class": (
        lambda: setattr(DataLoader, "planted", True),
        lambda: hasattr(DataLoader, "planted"),
    ),
    "a function of torch": (lambda: setattr(nn.functional, "relu", torch.tanh), lambda: nn.functional.relu),
    "a function of Python": (lambda: setattr(random, "random", lambda: 0.5), lambda: random.random),
    "a constant": (lambda: setattr(math, "pi", 3), lambda: math.pi),
    "a built-in name": (lambda: setattr(builtins, "planted", 3), lambda: hasattr(builtins, "planted")),
}
LATER = ("default dtype", "matmul precision", "mkldnn", "numpy's errors", "decimal", "recursion limit")


def model_fn(change: str, lr: float = 0.1) -> Any:
    if change in CHANGES:
        CHANGES[change][0]()
    model = nn.Linear(3, 2, dtype=torch.float32)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def train_fn(batches: Any, later: str, was: str, sets: bool) -> dict[str, float]:
    """Returns whether the setting has moved; the first unit sets it."""
    moved = repr(CHANGES[later][1]()) != was
    for _ in batches:
        if sets:
            CHANGES[later][0]()
    return {"moved": float(moved)}


def unit(place: int, state: TaskState | None = None, **hparams: Any) -> UnitJob:
    rng = np.random.default_rng(place)
    columns: dict[str, Any] = {
        "x": rng.standard_normal((4, 3)).astype(np.float32),
        "y": rng.integers(0, 2, 4),
    }
    return UnitJob(
        unit=Unit("c0000", 0, place),
        hparams=hparams,
        seed=3,
        epochs=1,
        visited=tuple(range(place)),
        rows=(4, 4, 4),
        partition=Partition(place, 4, columns),
        validation=(),
        loader=LoaderSettings(batch_size=2),
        state=state,
        device="cpu",
    )


def task(**keys: Any) -> FunctionTask:
    return FunctionTask(TorchSection(kind="torch", model_fn=f"{ME}:model_fn", **keys), HERE)


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    with process_settings.borrowed():
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHANGES)
def test_settings_of_a_unit_are_undone_at_its_end(name: str) -> None:
    change, read = CHANGES[name]
    before = read()
    with process_settings.borrowed():
        change()
        assert read() != before or name in ("default device", "locale")
    assert read() == before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["default dtype", "environment", "a patched class", "global hooks"])
def test_a_config_trains_as_if_it_were_alone(name: str) -> None:
    by = task(loss="cross_entropy")
    alone = by.train(unit(0, change="")).state
    by.train(unit(0, change=name))
    again: UnitResult = by.train(unit(0, change=""))
    assert torch.equal(alone["model"]["weight"], again.state["model"]["weight"])
    assert "settings" not in again.state


@pytest.mark.parametrize("name", LATER)
def test_settings_made_in_training_go_with_the_config(name: str) -> None:
    by, (_, read) = task(train_fn=f"{ME}:train_fn"), CHANGES[name]
    was, state, moved = repr(read()), None, []
    for place in range(3):
        result = by.train(unit(place, state, change="", later=name, was=was, sets=place == 0))
        state = result.state
        moved += [row["train_moved"] for row in result.log]
        assert repr(read()) == was
    assert moved == [False, True, True]


def test_a_file_that_sets_something_on_its_import_sets_it_in_each_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_patching_file.py").write_text("import torch\ntorch.nn.Linear.planted = lambda self: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        with process_settings.borrowed():
            importlib.import_module("a_patching_file")
            assert nn.Linear(1, 1).planted() == 1  # type: ignore[operator]
        assert not hasattr(nn.Linear, "planted")


def test_an_optimizers_own_hook_stays() -> None:
    with process_settings.borrowed():
        torch.optim.Rprop([torch.zeros(1)])
    assert torch.optim.Rprop.step.hooked  # type: ignore[attr-defined]


def test_without_pythons_numbers_patches_are_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_patches, "versions_of", lambda owners: lambda: [None] * len(owners))
    patches = library_patches.LibraryPatches()
    patches.look()
    nn.Linear.forward = doubled  # type: ignore[method-assign]
    assert patches.undo([]) == ["torch.nn.modules.linear.Linear.forward"]
    assert nn.Linear.forward is not doubled


def test_torch_stays_whole_if_a_unit_is_the_first_to_import_it() -> None:
    """As units of numpy's arrays do whose batches workers make. ``torch.ops`` names a file that is none."""
    program = (
        "import os\n"
        "from cerebro_elastic.training import process_settings\n"
        "with process_settings.borrowed():\n"
        "    import torch\n"
        "    os.environ['SET_BY_A_UNIT'] = '1'\n"
        "assert 'SET_BY_A_UNIT' not in os.environ\n"
        "torch.ops.aten.add, torch.classes\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
