"""What a config sets in its process reaches no other config."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.system import process_settings
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import UnitJob

HERE, ME = Path(__file__).parent, Path(__file__).stem
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "torch.set_default_dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "torch.set_default_device": (lambda: torch.set_default_device("cpu:0"), torch.get_default_device),
    "torch.set_float32_matmul_precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        torch.get_float32_matmul_precision,
    ),
    "torch.backends.mkldnn.enabled": (
        lambda: setattr(torch.backends.mkldnn, "enabled", False),
        lambda: torch.backends.mkldnn.enabled,
    ),
    "torch.backends.cudnn.benchmark": (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: torch.backends.cudnn.benchmark,
    ),
    "torch.backends.cudnn.allow_tf32": (
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: torch.backends.cudnn.allow_tf32,
    ),
    "torch.use_deterministic_algorithms": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.are_deterministic_algorithms_enabled,
    ),
    "torch.autograd.set_detect_anomaly": (
        lambda: torch.autograd.set_detect_anomaly(True),
        torch.is_anomaly_enabled,
    ),
    "torch.set_num_threads": (lambda: torch.set_num_threads(3), torch.get_num_threads),
    "torch.set_grad_enabled": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "os.environ": (lambda: os.environ.pop("HOME", None), lambda: dict(os.environ)),
    "the working directory": (lambda: os.chdir("/"), os.getcwd),
    "numpy.seterr": (lambda: np.seterr(all="raise"), np.geterr),
}


def test_the_parameters_that_pyro_keeps_by_name_end_with_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    store = {"before": 1}
    monkeypatch.setitem(sys.modules, "pyro", SimpleNamespace(get_param_store=lambda: store))
    with process_settings.borrowed():
        store["loc"] = 2
    assert store == {"before": 1}


def model_fn(change: str, lr: float = 0.1) -> Any:
    if change:
        CHANGES[change][0]()
    model = nn.Linear(3, 2, dtype=torch.float32)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def train_fn(batches: Any, later: str) -> None:
    for _ in batches:
        if later:
            CHANGES[later][0]()


def unit(**hparams: Any) -> UnitJob:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "x": rng.standard_normal((4, 3)).astype(np.float32),
        "y": rng.integers(0, 2, 4),
    }
    return UnitJob(
        unit=Unit("c0000", 0, 0),
        hparams=hparams,
        seed=3,
        epochs=1,
        visited=(),
        rows=(4,),
        partition=Partition(0, 4, columns),
        validation=(),
        loader=LoaderSettings(batch_size=2),
        state=None,
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
def test_what_a_model_sets_is_undone_and_what_training_sets_is_refused(name: str) -> None:
    change, read = CHANGES[name]
    by, before = task(train_fn=f"{ME}:train_fn"), read()
    by.train(unit(change=name, later=""))
    assert read() == before
    if name != "torch.set_default_device":  # "cpu:0" reads as "cpu"
        with pytest.raises(TaskError, match=rf"{name} changed .*in training"):
            by.train(unit(change="", later=name))
    assert read() == before
    change()
    assert read() != before or name == "torch.set_default_device"


def test_torch_stays_whole_if_a_unit_is_the_first_to_import_it() -> None:
    """As units of numpy's arrays do whose batches workers make. ``torch.ops`` names a file that is none."""
    program = (
        "import os\n"
        "from cerebro_elastic.system import process_settings\n"
        "with process_settings.borrowed():\n"
        "    import torch\n"
        "    os.environ['SET_BY_A_UNIT'] = '1'\n"
        "assert 'SET_BY_A_UNIT' not in os.environ\n"
        "torch.ops.aten.add, torch.classes\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
