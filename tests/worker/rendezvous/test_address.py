"""Where other nodes find this one."""

from __future__ import annotations

import socket

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousParameters

from cerebro_elastic.system.listening import listening_address, node_address
from cerebro_elastic.worker.rendezvous.handler import NodeRendezvous

UNKNOWN = "no-such-host.invalid"
LOCAL, ELSEWHERE = "127.0.0.1:1", "192.0.2.7:2379"


def address(endpoint: str, given: str | None) -> str:
    """That of a node by torchrun's options."""
    params = RendezvousParameters("cerebro", endpoint, "r", 1, 1, local_addr=given)
    handler = NodeRendezvous.from_parameters(params)
    try:
        return handler._node.address
    finally:
        handler.shutdown()


@pytest.mark.parametrize("endpoint", [LOCAL, ELSEWHERE])
def test_torchruns_local_addr_is_where_the_node_is_found(endpoint: str) -> None:
    assert address(endpoint, "127.0.0.9") == "127.0.0.9"


def test_a_node_of_an_etcd_on_loopback_is_found_there() -> None:
    assert address(LOCAL, None) == "127.0.0.1"


@pytest.mark.parametrize("endpoint", [LOCAL, ELSEWHERE])
def test_a_name_that_is_unknown_here_keeps_the_node_from_joining(endpoint: str) -> None:
    with pytest.raises(RendezvousConnectionError, match=f"{UNKNOWN}.*--local-addr.*/etc/hosts"):
        address(endpoint, UNKNOWN)


@pytest.mark.parametrize("name", [UNKNOWN, "a..b"])
def test_where_the_own_name_is_unknown_the_way_to_etcd_gives_the_address(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as etcd:
        assert node_address(name, etcd.getsockname()) == "127.0.0.1"


def test_a_name_of_one_outer_address_is_the_address() -> None:
    assert listening_address("192.0.2.9") == "192.0.2.9"
    assert node_address("192.0.2.9", ("127.0.0.1", 1)) == "192.0.2.9"
