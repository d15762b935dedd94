"""Where other nodes find this one."""

from __future__ import annotations

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousParameters

from cerebro_elastic.system import listening
from cerebro_elastic.system.listening import node_address
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


@pytest.mark.parametrize(
    ("ways", "name", "expected"),
    [
        ({"10.0.0.7": "10.0.0.1"}, "127.0.1.1", "10.0.0.1"),
        ({"10.0.0.7": "10.0.0.1"}, "192.0.2.9", "10.0.0.1"),
        ({"10.0.0.7": OSError("no way"), "fd00::7": "fd00::1"}, UNKNOWN, "fd00::1"),
        # etcd is on this machine, under a name that /etc/hosts leads to loopback.
        ({"10.0.0.7": "127.0.0.1", "192.0.2.1": "10.0.0.1"}, "192.0.2.9", "192.0.2.9"),
        ({"10.0.0.7": "127.0.0.1", "192.0.2.1": "10.0.0.1"}, "127.0.1.1", "10.0.0.1"),
        ({"10.0.0.7": "::1", "192.0.2.1": OSError(), "2001:db8::1": "fd00::1"}, UNKNOWN, "fd00::1"),
        ({"10.0.0.7": "127.0.0.1", "192.0.2.1": OSError(), "2001:db8::1": OSError()}, "a..b", "127.0.0.1"),
    ],
)
def test_others_find_a_node_at_the_address_by_which_it_reaches_etcd(
    ways: dict[str, str | OSError], name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source(server: tuple[str, int]) -> str:
        found = ways[server[0]]
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(listening, "_source", source)
    assert node_address(name, [("10.0.0.7", 2379), ("fd00::7", 2379)]) == expected
