"""Hosts as namespaces are hosts: an address, a disk, a clock and processes of their own, links that can be
cut, be slow, and lose packets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hosts import Host, Hosts, beside_hosts, why_no_loss, why_not
from support.processes import is_running
from support.waiting import SOON

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
import os, sys, torch
from cerebro_elastic.training.parallel import group
rank, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = group.connect(host, port) if rank else group.listen(host)
print(store.port, flush=True)
with group.formed(store, rank, 2, torch.device("cpu"), patience=120):
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
print(int(total), flush=True)
os._exit(0)  # gloo may fail where its peer has ended first
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
    if why_no_loss() is None:
        with far.losing(0.999):
            assert not reaches(far, server)
        assert reaches(far, server)

    near.run(["touch", "/tmp/mine"])
    assert "mine" in near.run(["ls", "/tmp"])
    assert near.file("/tmp/mine").exists()
    assert "mine" not in far.run(["ls", "/tmp"])
    server.kill()
    near.kill()
    assert serving.wait() != 0
    near.start()
    assert near.run(["ls", "/tmp"]) == "home\n"
    assert not reaches(near, server)


ON_A_HOST = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from support.hosts import Hosts
with Hosts(1) as hosts:
    print(hosts[0].popen(["sleep", "60"]).pid, flush=True)
    input()
"""


@pytest.mark.parametrize("beside", [False, True], ids=["from outside", "beside them"])
def test_nothing_of_them_is_left_behind_a_killed_process(beside: bool) -> None:
    command = [sys.executable, "-c", ON_A_HOST]
    maker = subprocess.Popen(
        beside_hosts(command) if beside else command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert maker.stdout is not None
    maker.stdout.readline()
    inside = descendants(maker.pid)
    assert len(inside) >= 3
    os.kill(maker.pid, signal.SIGKILL)
    maker.communicate()
    deadline = time.monotonic() + SOON
    while left := [pid for pid in inside if is_running(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [each for child in children for each in descendants(child)]


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
