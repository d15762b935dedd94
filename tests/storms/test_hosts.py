"""Hosts as namespaces are hosts: an address, a disk and processes of their own, links that can be cut."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.hosts import Host, Hosts, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SERVE = """
import socket
with socket.create_server(("", 5000)) as server:
    print("listens", flush=True)
    while True:
        server.accept()[0].close()
"""

CEREBRO = [sys.executable, "-m", "cerebro_elastic.cli"]
RANK = """
import sys, torch
from cerebro_elastic.training.parallel import group
rank, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = group.connect(host, port) if rank else group.listen(host)
print(store.port, flush=True)
with group.formed(store, rank, 2, torch.device("cpu"), patience=120):
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
print(int(total), flush=True)
"""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(3, rate="1gbit") as hosts:
        yield hosts


def reaches(one: Host, other: Host) -> bool:
    """Whether a connection from ``one`` to the server of the ``other`` comes about."""
    call = ["timeout", "2", "bash", "-c", f"</dev/tcp/{other.address}/5000"]
    return one.popen(call, stderr=subprocess.DEVNULL).wait() == 0


def test_hosts_have_an_address_a_disk_and_processes_of_their_own(hosts: Hosts) -> None:
    server, near, far = hosts
    serving = server.popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE)
    assert serving.stdout is not None
    assert serving.stdout.readline() == b"listens\n"
    assert reaches(near, server)
    assert not reaches(server, near), "only one serves"
    with server.deaf_to(near):
        assert not reaches(near, server)
        assert reaches(far, server)
    with far.unplugged():
        assert not reaches(far, server)
        assert reaches(near, server)
    assert reaches(far, server)

    near.run(["touch", "/tmp/mine"])
    assert "mine" in near.run(["ls", "/tmp"])
    assert "mine" not in far.run(["ls", "/tmp"])
    server.kill()
    near.kill()
    assert serving.wait() != 0
    near.start()
    assert near.run(["ls", "/tmp"]) == "home\n"
    assert not reaches(near, server)


def test_an_etcd_of_ours_serves_hosts_of_ipv6_whatever_proxy_the_network_has(hosts: Hosts) -> None:
    """Then ranks of two of them form a group, though the hosts' own names lead nowhere: gloo by itself would
    listen on loopback, as it would where Debian's /etc/hosts leads a name to 127.0.1.1."""
    first, second, _ = hosts
    for host in hosts:
        host.run(["ip", "addr", "del", f"{host.address}/24", "dev", "eth0"])
    key = {"CEREBRO_RUN_KEY": "ab" * 32}
    proxy = {"HTTPS_PROXY": "http://192.0.2.1:1", **key}
    serving = first.popen([*CEREBRO, "etcd", "r", "--listen", "::"], proxy, stdout=subprocess.PIPE)
    assert serving.stdout is not None
    assert b"serves on [::]:2379" in serving.stdout.readline()
    status = [*CEREBRO, "status", "r", "--etcd", f"[{first.address6}]:2379"]
    asking = second.popen(status, key, stderr=subprocess.PIPE)
    assert b"knows no run 'r'" in asking.communicate()[1]

    leads = first.popen([sys.executable, "-c", RANK, "0", first.address6, "0"], stdout=subprocess.PIPE)
    assert leads.stdout is not None
    port = leads.stdout.readline().decode().strip()
    assert second.run([sys.executable, "-c", RANK, "1", first.address6, port]).splitlines()[-1] == "2"
    assert leads.communicate()[0] == b"2\n"
    first.kill()
    serving.communicate()


def test_nothing_of_them_is_left_after_an_error() -> None:
    left: list[subprocess.Popen[bytes]] = []

    def fail(host: Host) -> None:
        left.append(host.popen(["sleep", "60"]))
        raise ZeroDivisionError

    hosts = Hosts(1)
    with pytest.raises(ZeroDivisionError), hosts:
        fail(hosts[0])
    assert left[0].wait() != 0
    known = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert hosts[0].name not in known
