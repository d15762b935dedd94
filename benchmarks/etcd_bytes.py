"""What a unit leaves in etcd: bytes of its keys, and growth of the database.

    python benchmarks/etcd_bytes.py [--epochs 5 15]

Runs ``recipes/digits_torch.yaml`` (8 configs, 4 partitions, 2 nodes) once for each number of epochs on an
etcd of its own. "keys" is what a snapshot holds at the end; "database" what etcd has grown by, with
the history that it keeps until it is compacted; "compacted" what is left of that after compaction and
defragmentation. Per unit is the slope between the shortest and the longest run, so that what a run
takes once does not count.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import cerebro_elastic
from cerebro_elastic.core.history.keys import Keys
from cerebro_elastic.store.client.cluster import open_endpoints
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.endpoint import Endpoint
from cerebro_elastic.store.client.etcd import EtcdStore

RECIPE = Path(__file__).parents[1] / "recipes" / "digits_torch.yaml"
_SECONDS = 60.0


@dataclass(frozen=True)
class Measured:
    """One run: its units, transactions, and bytes of keys (by kind) and of the database."""

    units: int
    revisions: int
    keys: Counter[str]
    database: int
    compacted: int


def measure(epochs: int, scratch: Path) -> Measured:
    with EmbeddedEtcd(scratch / "etcd") as etcd, closing(EtcdStore(etcd.settings)) as store:
        (server,) = open_endpoints(etcd.settings)
        empty = used(server)
        result = cerebro_elastic.run(
            RECIPE, epochs=epochs, home=scratch, run_id="measured", store=etcd.settings
        )
        keys, names = Counter[str](), Keys("measured")
        snapshot = store.range(names.prefix)
        for item in snapshot.items:
            keys[names.split(item.key)[0]] += len(item.key.encode()) + len(item.value)
        database = used(server) - empty
        server.call("kv/compaction", {"revision": snapshot.revision, "physical": True}, _SECONDS, None)
        server.call("maintenance/defragment", {}, _SECONDS, None)
        units = sum(len(row.visits) for row in result.leaderboard)
        return Measured(units, snapshot.revision, keys, database, used(server) - empty)


def used(server: Endpoint) -> int:
    """Bytes of the database that hold something."""
    return int(server.call("maintenance/status", {}, _SECONDS, None)["dbSizeInUse"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--epochs", type=int, nargs=2, default=(5, 15), help="of the shorter and longer run")
    arguments = parser.parse_args()
    runs = []
    for epochs in arguments.epochs:
        with tempfile.TemporaryDirectory(prefix="cerebro-etcd-bytes-") as scratch:
            runs.append(measure(epochs, Path(scratch)))
    short, long = runs
    units = long.units - short.units
    print(f"{short.units} and {long.units} units; per unit:")
    print(f"  transactions {(long.revisions - short.revisions) / units:8.1f}")
    print(f"  keys         {(long.keys.total() - short.keys.total()) / units:8.0f} bytes")
    for kind in sorted(long.keys):
        print(f"    {kind:10} {(long.keys[kind] - short.keys[kind]) / units:8.0f}")
    print(f"  database     {(long.database - short.database) / units:8.0f} bytes")
    print(f"  compacted    {(long.compacted - short.compacted) / units:8.0f} bytes")
    print(f"once per run: {short.keys.total() - short.keys['visits']} bytes of keys")


if __name__ == "__main__":
    main()
