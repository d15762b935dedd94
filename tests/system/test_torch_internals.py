"""The names private to torch that we use, each by itself: an upgrade of torch that takes one away fails here,
by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from cerebro_elastic.hop import _torch_internals as internals
from cerebro_elastic.system import torch_internals


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))
        self.register_buffer("hidden", torch.zeros(1), persistent=False)


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)


def scheduler() -> Any:
    return ConstantLR(optimizer())


def pruning() -> Any:
    layer = prune.l1_unstructured(nn.Linear(2, 2), "weight", 0.5)
    (method,) = layer._forward_pre_hooks.values()
    return method


OWNERS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"), Buffered),
    **dict.fromkeys(internals.CALL_HOOK_TABLES, Buffered),
    **dict.fromkeys(internals.OPTIMIZER_HOOK_TABLES, lambda: torch.optim.SGD([torch.zeros(1)])),
    "_post_accumulate_grad_hooks": lambda: nn.Parameter(torch.zeros(1)),
    "_version": lambda: torch.zeros(1),
    "_init_flat_weights": lambda: nn.LSTM(1, 1),
    "_tensor_name": pruning,
    "_initialize_hook": lambda: nn.LazyLinear(1),
    "_load_hook": lambda: nn.LazyLinear(1),
    "_infer_parameters": lambda: nn.LazyLinear(1),
    "cls_to_become": lambda: nn.LazyLinear(1),
    "base_lrs": scheduler,
    "_last_lr": scheduler,
    "_schedulers": lambda: ChainedScheduler([scheduler()]),
    "_is_in_bad_fork": lambda: torch.cuda,  # asked by the fork server
    "_get_privateuse1_backend_name": lambda: torch._C,
}
"""What has each attribute."""


@pytest.mark.parametrize("name", OWNERS)
def test_an_attribute_is_there(name: str) -> None:
    owner = OWNERS[name]()
    kind = type(owner).__name__
    assert hasattr(owner, name), f"torch {torch.__version__}: a {kind} has no {name} any more"


@pytest.mark.parametrize(
    "name",
    [
        *("torch._dynamo", "torch._C._distributed_c10d.HashStore", "torch._C._distributed_c10d.Store"),
        "torch.distributed.elastic.rendezvous.dynamic_rendezvous._NodeDesc",
        "torch.distributed.elastic.rendezvous.dynamic_rendezvous._RendezvousState",
    ],
)
def test_a_name_can_be_imported(name: str) -> None:
    module, _, last = name.rpartition(".")
    present = (last == "_dynamo" and importlib.import_module(name)) or hasattr(
        importlib.import_module(module), last
    )
    assert present, f"torch {torch.__version__} has no {name} any more"


def test_workers_of_a_loader_are_stopped() -> None:
    stopped: list[bool] = []

    class Iterator:
        def _shutdown_workers(self) -> None:
            stopped.append(True)

    torch_internals.stop_workers(Iterator())
    assert stopped
    assert hasattr(_MultiProcessingDataLoaderIter, "_shutdown_workers")


def test_the_parts_of_a_sparse_tensor_are_there() -> None:
    sparse = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,), is_coalesced=False)
    indices, values = (getattr(sparse, name)() for name in torch_internals.SPARSE_PARTS)
    assert indices.tolist() == [[0, 0]]
    assert values.tolist() == [1.0, 2.0]


def test_every_table_and_attribute_is_tried() -> None:
    used = {
        *internals.CALL_HOOK_TABLES,
        *internals.PARAMETER_HOOK_TABLES,
        *internals.OPTIMIZER_HOOK_TABLES,
    }
    assert used | set(internals.MOVED_RATES) <= OWNERS.keys()


def test_they_mean_what_we_take_them_for() -> None:
    module = Buffered()
    assert torch_internals.buffers_of(module).keys() == {"kept", "hidden"}
    assert torch_internals.non_persistent_buffers_of(module) == {"hidden"}
    assert module.state_dict().keys() == {"kept"}
    outer = nn.Sequential(module, nn.Linear(1, 1))
    assert torch_internals.modules_of(outer) == dict(outer.named_children())
    assert torch_internals.parameters_of(outer[1]).keys() == {"weight", "bias"}
    assert vars(outer).keys() - torch_internals.MODULE_ATTRIBUTES == {"training"}
    assert vars(optimizer()).keys() <= internals.OPTIMIZER_ATTRIBUTES
    tensor = torch.zeros(2)
    before = torch_internals.version_of(tensor)
    tensor.add_(1)
    assert torch_internals.version_of(tensor) > before
    assert internals.pruned_name(pruning()) == "weight"


def test_a_lazy_module_is_finalized_as_its_first_batch_does_it() -> None:
    ours, torchs = nn.LazyLinear(2), nn.LazyLinear(2)
    hooks = [hook.__qualname__ for hook in internals.hooks_of(ours, "_forward_pre_hooks").values()]
    assert any(map(internals.is_lazy_hook, hooks))
    torchs(torch.zeros(1, 3))
    ours.initialize_parameters(torch.zeros(1, 3))
    internals.finalize_lazy_module(ours)
    assert type(ours) is type(torchs) is nn.Linear
    assert vars(ours).keys() == vars(torchs).keys()
    assert not internals.hooks_of(ours, "_forward_pre_hooks")


def test_normalization_is_known_and_nothing_else() -> None:
    assert torch_internals.normalizes(nn.BatchNorm2d(1))
    assert torch_internals.normalizes(nn.InstanceNorm1d(1))
    assert not torch_internals.normalizes(nn.LayerNorm(1))
