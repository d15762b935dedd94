"""The names private to torch's distributed package that we use, and what they do for us."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed.distributed_c10d as c10d
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from cerebro_elastic.hop import _torch_internals as of_hops
from cerebro_elastic.training.parallel import _torch_internals as internals
from cerebro_elastic.training.parallel import group
from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_pipeline import _torch_internals as nested

pytestmark = pytest.mark.cluster
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["_world", "_set_pg_timeout"])
def test_a_name_is_there(name: str) -> None:
    assert hasattr(c10d, name), f"torch {torch.__version__}: distributed_c10d has no {name} any more"


def test_the_hooks_of_an_optimizers_state_are_where_we_look() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)])
    for table in of_hops.OPTIMIZER_STATE_HOOKS:
        assert hasattr(optimizer, table), f"torch {torch.__version__}: an optimizer has no {table} any more"


def test_a_reducer_can_check_whether_it_is_done() -> None:
    assert hasattr(DistributedDataParallel, "_check_reducer_finalized"), f"torch {torch.__version__}"


def test_nested_tensors_are_seen_and_mapped() -> None:
    batch = {"x": torch.ones(2), "more": [torch.zeros(1), "text"]}
    assert [len(tensor) for tensor in nested.tensors_of(batch)] == [2, 1]
    doubled = nested.map_tensors(lambda tensor: tensor * 2, batch)
    assert doubled["x"].tolist() == [2, 2]
    assert doubled["more"][1] == "text"


def test_in_a_group_they_do_what_they_are_for(ranks: Ranks) -> None:
    assert ranks.together(look, members=[0, 1]) == [[], []]


def look() -> list[str]:
    """What is not as it should be."""
    mesh = group.mesh(CPU)
    whole = torch.arange(6.0).reshape(3, 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    own = internals.local_tensor_of(sharded)
    again = internals.sharded_like(own.clone(), sharded)
    internals.set_patience_of_the_group(timedelta(seconds=41))
    patience = internals.patience_of_the_group()
    internals.set_patience_of_the_group(timedelta(seconds=60))
    wrong = {
        "local_tensor_of": not isinstance(own, Tensor) or isinstance(own, DTensor) or not len(own),
        "sharded_like": not torch.equal(again.full_tensor(), whole),
        "patience_of_the_group": patience != timedelta(seconds=41),
        "present_groups": not internals.present_groups(),
        "forget_groups_of": not hasattr(mesh, "_pg_registry"),
        "forget_failed_groups": not hasattr(c10d._world, "group_count"),
    }
    return [name for name, failed in wrong.items() if failed]
