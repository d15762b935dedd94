"""A run over shards on S3 that are read where they lie, beside the same run over prepared data.

``python benchmarks/in_place.py [--mb 1000] [--configs 8] [--epochs 3] [--kind parquet]``: 64 shards on an S3
server on loopback, behind a proxy that counts (and is the bottleneck: it is Python). Of each way of reading:
the seconds until the first unit trains, the bytes that the server has served and been sent in
all, and the rows a second of the last epoch, when all is in the cache.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from s3_bytes import storage

from cerebro_elastic import Run
from cerebro_elastic.system.files import locate, write
from support.proxy import BadProxy

SHARDS, WIDTH = 64, 256
CEREBRO = [sys.executable, "-m", "cerebro_elastic.cli"]

RECIPE = """
epochs: {epochs}
nodes: 2
check: "off"
task: {{kind: torch, model_fn: "functions:model", loss: cross_entropy, optimizer: SGD}}
data: {{{data}, batch_size: 256}}
search: {{space: {{lr: {rates}}}}}
objective: {{metric: train_loss, mode: min}}
"""

FUNCTIONS = """
import io

import numpy as np
from torch import nn


def model():
    return nn.Linear(256, 10)


def opened(value):
    return np.frombuffer(value, np.float32)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--mb", type=int, default=1000)
    options.add_argument("--configs", type=int, default=8)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--partitions", type=int, default=64)
    options.add_argument("--kind", choices=["parquet", "tar"], default="parquet")
    given = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cerebro-in-place-")))
        proxy = stack.enter_context(storage(folder))
        total = sum(written(shard, given.mb, given.kind) for shard in range(SHARDS))
        print(f"{SHARDS} shards of {given.kind}, {total / 1e6:.0f} MB", flush=True)
        began, plain = time.monotonic(), locate("s3://bucket/train")
        for path in plain.fs.ls(plain.path, detail=False):
            plain.fs.get_file(path, str(folder / "plain"))
        print(f"fsspec's plain get of all: {total / 1e6 / (time.monotonic() - began):.0f} MB/s", flush=True)
        (folder / "functions.py").write_text(FUNCTIONS)
        shards = f"s3://bucket/train/*.{given.kind}"
        decode = "" if given.kind == "parquet" else ", decode: {bin: 'functions:opened'}, columns: [bin, cls]"
        dealt = f"partitions: {given.partitions}, valid: 0{decode}"
        ways = {
            "in place": f'shards: "{shards}", {dealt}',
            "as a source": f'source: "{shards}", {dealt}',
            "prepared": f'url: "s3://bucket/prepared"{decode.partition(", columns")[0]}',
        }
        rates = [round(0.1 / 2**i, 6) for i in range(given.configs)]
        for number, (way, data) in enumerate(ways.items()):
            if way == "prepared":
                of_tars = ["--columns", "bin", "--columns", "cls"]
                prepare(shards, given.partitions, proxy, of_tars if decode else [])
            (folder / f"r{number}.yaml").write_text(
                RECIPE.format(epochs=given.epochs, data=data, rates=rates)
            )
            report(way, folder, f"r{number}", proxy, total)


def written(shard: int, megabytes: int, kind: str) -> int:
    """Write a shard; returns its bytes."""
    rng, rows = np.random.default_rng(shard), megabytes * 1_000_000 // SHARDS // (4 * WIDTH)
    x, y = rng.normal(size=(rows, WIDTH)).astype(np.float32), rng.integers(10, size=rows)
    file = io.BytesIO()
    if kind == "parquet":
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH)
        pyarrow.parquet.write_table(pa.table({"x": lists, "y": y}), file, compression="none")
    else:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for row in range(rows):
                for name, content in (("bin", x[row].tobytes()), ("cls", str(y[row]).encode())):
                    member = tarfile.TarInfo(f"{row:07d}.{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return write(locate(f"s3://bucket/train/{shard:03d}.{kind}"), [file.getvalue()]).bytes


def prepare(shards: str, partitions: int, proxy: BadProxy, more: list[str]) -> None:
    proxy.reset()
    began = time.monotonic()
    command = [*CEREBRO, "prepare", shards, "s3://bucket/prepared", "--partitions", str(partitions)]
    subprocess.run([*command, "--valid", "0", *more], check=True, stdout=subprocess.DEVNULL)
    print(f"`cerebro prepare` took {time.monotonic() - began:.1f} s, {traffic(proxy)}", flush=True)


def traffic(proxy: BadProxy) -> str:
    sent = sum(len(request.body) for request in proxy.requests if request.method in ("PUT", "POST"))
    return f"{sum(proxy.served.values()) / 1e6:.0f} MB served, {sent / 1e6:.1f} MB sent"


def report(way: str, folder: Path, run: str, proxy: BadProxy, total: int) -> None:
    proxy.reset()
    began = time.time()
    command = [*CEREBRO, "run", f"{run}.yaml", "--home", str(folder / "runs")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    result = Run.open(run, home=folder / "runs").result
    visits = [visit for row in result.leaderboard for visit in row.visits]
    trained = min(visit.started + visit.fetch_seconds + visit.hop_seconds for visit in visits)
    last = [visit for visit in visits if visit.unit.epoch == max(each.unit.epoch for each in visits)]
    rate = sum(visit.samples for visit in last) / sum(visit.seconds for visit in last)
    print(
        f"{way}: the first unit trained after {trained - began:.1f} s, all ended after "
        f"{time.time() - began:.1f} s; {traffic(proxy)}, {sum(proxy.served.values()) / total:.3f} x the "
        f"data; {rate:.0f} rows a second and node in the last epoch",
        flush=True,
    )


if __name__ == "__main__":
    main()
