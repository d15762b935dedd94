"""Three members: the contract holds when one has fallen, and nothing is lost while they fall in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreError, TxnUnknown
from cerebro_elastic.store.client.base import Put, Store, at_revision
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.etcd_program import may_diverge
from cerebro_elastic.store.client.lease import LeaseKeeper
from support.etcd_cluster import EtcdCluster, etcd_version
from support.store_contract import expect
from support.waiting import SOON

pytestmark = pytest.mark.filterwarnings("ignore:etcd at .* may make the members:UserWarning")

Connect = Callable[[StoreSettings], EtcdStore]


def count_up(store: Store, key: str, to: int) -> None:
    """Count by ones, each exactly once, even if answers are lost."""
    item = store.get(key)
    while True:
        number = int(item.value) if item else 0
        if number >= to:
            return
        guard = at_revision(key, item.mod_revision if item else 0)
        with suppress(TxnUnknown):  # the next read shows it
            store.txn([guard], [Put(key, b"%d" % (number + 1))])
        item = store.get(key)


@contextmanager
def unless_etcd_forgets(cluster: EtcdCluster) -> Iterator[None]:
    """A member of 3.5.0 to 3.5.5 that was killed may never know again what it knew (etcd issue 13766). No
    client can recover the lost writes. Mostly a watch finds that out, and says so; a member that has fallen
    behind by few revisions, while others were written, may also give them other numbers."""
    try:
        yield
    except (AssertionError, StoreError):
        if may_diverge(etcd_version()) and (behind := cluster.left_behind(SOON)):
            pytest.skip(f"etcd {etcd_version()} has lost history: {', '.join(behind)}")
        raise


def test_members_fall_in_turn(tmp_path: Path, connect: Connect, store_prefix: str) -> None:
    key, total = store_prefix + "count", 600
    with ExitStack() as stack:
        cluster = stack.enter_context(EtcdCluster(tmp_path))
        # On a machine that is busy, a new leader may take many elections.
        store = stack.enter_context(closing(connect(replace(cluster.settings, patience=SOON / 2))))
        keeper = stack.enter_context(LeaseKeeper(store, ttl=SOON))
        stack.enter_context(unless_etcd_forgets(cluster))
        start = store.range(store_prefix).revision + 1
        watch = stack.enter_context(store.watch(store_prefix, start))
        counting = stack.enter_context(ThreadPoolExecutor(1)).submit(count_up, store, key, total)
        seen: list[bytes] = []
        while len(seen) < total:
            assert not counting.done() or not counting.exception(), counting.exception()
            (change,) = expect(watch).changes
            assert change.item is not None
            seen.append(change.item.value)
            lock, rest = divmod(len(seen), total // 4)
            if rest == 0 and lock < 4:
                if lock > 1:
                    cluster.start(lock - 2)
                cluster.kill(lock - 1)
        counting.result(timeout=SOON)
        assert seen == [b"%d" % (n + 1) for n in range(total)]
        assert not keeper.lost.is_set()
        assert store.keep(keeper.lease) > 0
