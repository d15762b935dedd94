"""Private names of torch that this folder uses. Tried with torch 2.13, 2.14 and 2.15.

``tests/system/test_torch_internals.py`` names the ones that an upgrade of torch takes away.
"""

from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc as NodeDescription
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousState as RendezvousState

__all__ = ["HashStore", "NodeDescription", "RendezvousState", "Store"]
# HashStore, Store: torch's key-value stores; their public names in ``torch.distributed`` have no types.
# NodeDescription, RendezvousState: the objects that torch's dynamic rendezvous pickles into a backend.
