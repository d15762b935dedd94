"""What only a real accelerator shows, in half an hour of one: a list of steps that each print PASS or FAIL.

    python benchmarks/gpu.py [--only seen,run] [--width 768] [--depth 12] [--rows 64] [--steps 20]

A step that fails does not end the others. Each line has the step, its verdict, and what was measured; at the
end stands a table for docs/evidence, one column per machine. All steps but the speeds, fsdp and deepspeed can
be tried on the pretended device (tests/support/pretended_device).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cerebro_elastic.core.model.attempts import Attempt, FailureKind
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.system import devices
from cerebro_elastic.training.parallel import group
from cerebro_elastic.training.parallel.base import Parallelism, Parts, make_parallelism
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.resources import in_use
from support.same import assert_same

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
import tiny_gpt

REPOSITORY = Path(__file__).parents[1]

AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
PATHS: Mapping[str, tuple[str, dict[str, Any], bool]] = {
    "single, float32": ("single", {}, False),
    "single, fused AdamW": ("single", {}, True),
    "fsdp on one rank, bfloat16": ("fsdp", {"precision": "bfloat16"}, False),
    "fsdp on one rank, offload": ("fsdp", {"offload": True}, False),
    "deepspeed stage 2 on one rank, bfloat16": ("deepspeed", {"stage": 2, "config": AUTOCAST}, False),
}
"""A parallelism, its options, and whether the optimizer is fused."""
HOPS_BYTES = (10**8, 10**9, 10**10)


@dataclass
class Bench:
    """The machine, the size of the model, and the results so far."""

    device: torch.device
    width: int
    depth: int
    rows: int
    steps: int
    folder: Path
    results: list[tuple[str, str, str]] = field(default_factory=list)

    def make(self, fused: bool = False) -> Parts:
        model = tiny_gpt.Gpt(self.width, self.depth)
        # The choice is made when the parameters are where they are trained: fused takes them on a GPU only.
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for each in optimizer.param_groups:
            each["fused"] = fused or None
        return Parts(model, optimizer)

    @contextmanager
    def unit(self, path: str) -> Iterator[tuple[Parallelism, Parts]]:
        """Fresh parts, in a group of one rank if the path needs one."""
        name, options, fused = PATHS[path]
        torch.manual_seed(0)
        with group.formed(group.listen("127.0.0.1"), 0, 1, self.device):
            parallelism = make_parallelism(name, options)
            try:
                yield parallelism, parallelism.build(lambda: self.make(fused), self.device)
            finally:
                parallelism.close()

    def step(self, parallelism: Parallelism, parts: Parts, number: int, rows: int | None = None) -> float:
        """Step ``number``; its loss."""
        generator = torch.Generator().manual_seed(number)
        text = torch.from_numpy(tiny_gpt.load()["text"])
        chosen = torch.randint(len(text), (rows or self.rows,), generator=generator)
        x, y = (part.to(self.device) for part in tiny_gpt.to_input(text[chosen]))
        loss: Tensor = parallelism.step(parts, x, y, tiny_gpt.loss, clip=1.0)
        return float(loss)

    def cerebro(self, *words: str, ok: bool = True, **more: str) -> str:
        """Calls the command in a process of its own; what it prints."""
        env = {**os.environ, "CEREBRO_HOME": str(self.folder / "runs"), **more}
        command = [sys.executable, "-m", "cerebro_elastic.cli", *words]
        done = subprocess.run(command, env=env, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        printed = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, printed[-2000:]
        return printed

    def recipe(self, name: str, **sections: Any) -> str:
        """A recipe of a small GPT, with these sections."""
        whole = {
            "name": name,
            "epochs": 2,
            "task": {"kind": "torch", "model_fn": "tiny_gpt:Gpt", "input_fn": "tiny_gpt:to_input",
                     "loss": "tiny_gpt:loss", "optimizer": "AdamW", "args": {"width": 64, "depth": 2}},
            "data": {"source": "tiny_gpt:load", "partitions": 4, "batch_size": 64, "valid": 0.1},
            "search": {"space": {"lr": [0.001, 0.0003]}},
            "check": "off",
            **sections,
        }  # fmt: skip
        shutil.copy(REPOSITORY / "recipes/tiny_gpt.py", self.folder)
        (self.folder / f"{name}.yaml").write_text(json.dumps(whole))
        return str(self.folder / f"{name}.yaml")


def seen(bench: Bench) -> str:
    """Torch sees all accelerators of the machine, and doctor says so."""
    count = devices.count_here()
    assert count, "torch has no accelerator here"
    said = bench.cerebro("doctor")
    assert f"with {count} of {devices.hardware_here()}" in said, said
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        assert count == listed.count("GPU ") or devices.VISIBLE["cuda"] in os.environ, listed
    return f"{count} x {devices.hardware_here()}, torch {torch.__version__}"


def run(bench: Bench) -> str:
    """The example's run and its replay, bit for bit."""
    began = time.monotonic()
    bench.cerebro("run", "recipes/digits.yaml", "--run-id", "digits")
    took = time.monotonic() - began
    assert "bit-identical" in bench.cerebro("replay", "digits")
    return f"{took:.0f} s"


def killed(bench: Bench) -> str:
    """A rank and a node are killed in a run, which ends and is replayed bit for bit."""
    words = bench.recipe("killed", nodes=1, epochs=4)
    env = {**os.environ, "CEREBRO_HOME": str(bench.folder / "runs")}
    command = [sys.executable, "-m", "cerebro_elastic.cli", "run", words]
    with open(bench.folder / "killed.log", "wb") as log:
        process = subprocess.Popen(command, env=env, cwd=REPOSITORY, stdout=log, stderr=log)
        for _ in range(2):
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and process.poll() is None:
                asked = ["pgrep", "-f", "cerebro_elastic.worker"]
                ranks = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
                mine = [int(pid) for pid in ranks if _descends(int(pid), process.pid)]
                if mine and "first unit" in (bench.folder / "killed.log").read_text(errors="replace"):
                    os.kill(mine[-1], signal.SIGKILL)
                    break
                time.sleep(0.5)
            time.sleep(5)
        assert process.wait(600) == 0, (bench.folder / "killed.log").read_text()[-2000:]
    assert "bit-identical" in bench.cerebro("replay", "killed")
    return "killed twice"


def sharing(bench: Bench) -> str:
    """1, 2, 4 and 8 nodes on one GPU: units a second."""
    speeds = []
    for nodes in (1, 2, 4, 8):
        space = {"space": {"lr": [10**-k for k in range(1, 9)]}}
        words = bench.recipe(f"nodes{nodes}", nodes=nodes, epochs=1, search=space)
        began = time.monotonic()
        bench.cerebro("run", words, **{devices.VISIBLE.get(bench.device.type, "_"): "0"})
        speeds.append(f"{nodes}: {32 / (time.monotonic() - began):.2f}/s")
    return ", ".join(speeds)


def paths(bench: Bench) -> str:
    """The paths of one rank: the time of a step, peak memory, and a hop bit for bit."""
    told, losses, wrong = [], {}, []
    for path in PATHS:
        try:
            milliseconds, losses[path] = _trained(bench, path)
            told.append(f"{path} {milliseconds:.1f} ms, {devices.peak_bytes(str(bench.device)) / 1e6:.0f} MB")
        except Exception as error:
            wrong.append(f"{path}: {type(error).__name__}: {error}")
    assert not wrong, "; ".join([*wrong, *told])
    return "; ".join(told)


def _trained(bench: Bench, path: str) -> tuple[float, float]:
    device = str(bench.device)
    devices.give_back(device)
    devices.forget_peak(device)
    seconds, loss = [], 0.0
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        with bench.unit(path) as (parallelism, parts):
            for number in range(bench.steps):
                began = time.perf_counter()
                loss = bench.step(parallelism, parts, number)
                devices.synchronize(device)
                seconds.append(time.perf_counter() - began)
            ref = checkpoint.save(_named(parallelism, parts), f"{folder}/state")
            del parts
        with bench.unit(path) as (parallelism, parts):
            state = checkpoint.load(ref)
            parallelism.load(parts, state["model"], state["optimizer"])
            arrived = checkpoint.save(_named(parallelism, parts), f"{folder}/arrived")
            del parts
        assert_same(checkpoint.load(arrived), checkpoint.load(ref), path)
    group.sweep()
    return 1e3 * statistics.median(seconds[1:]), loss


def _named(parallelism: Parallelism, parts: Parts) -> dict[str, Any]:
    model, optimizer = parallelism.export(parts)
    return {"model": dict(model), "optimizer": optimizer}


def repeats(bench: Bench) -> str:
    """Layers, precisions and deterministic algorithms: whether two trainings are equal, bit for bit."""
    layers: Mapping[str, Callable[[], nn.Module]] = {
        "conv": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(4)),
        "dropout": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 256, 64), nn.Dropout(0.5), nn.Linear(64, 4)
        ),
        "lstm": lambda: _Recurrent(),
        "attention": lambda: nn.TransformerEncoderLayer(48, 4, batch_first=True),
    }
    differs = []
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        try:
            for name, make in layers.items():
                for precision in ("float32", "tf32", "bfloat16", "float16"):
                    once, again = (_weights(bench.device, make, name, precision) for _ in range(2))
                    if not all(map(torch.equal, once, again)):
                        differs.append(f"{name} {precision}{' deterministic' if deterministic else ''}")
        finally:
            torch.use_deterministic_algorithms(False)
    assert not any("deterministic" in each for each in differs), differs
    return f"differ: {', '.join(differs) or 'none'}"


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(48, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)[0]
        return output


def _weights(device: torch.device, make: Callable[[], nn.Module], name: str, precision: str) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (16, 3, 16, 16) if name in ("conv", "dropout") else (16, 16, 48)
    model, x = make().to(device), torch.randn(shape).to(device)
    model(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    for _ in range(5):
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = model(x).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.set_float32_matmul_precision(before)
    return [own.detach().cpu() for own in model.parameters()]


def out_of_memory(bench: Bench) -> str:
    """A unit runs out of memory, is told as such, and the next one trains as the first did."""
    path, rows = "single, float32", bench.rows
    _, loss = _trained(bench, path)
    try:
        with bench.unit(path) as (parallelism, parts):
            while True:
                rows *= 2
                bench.step(parallelism, parts, 0, rows)
    except RuntimeError as error:
        failure = failure_of(Attempt(Unit("c", 0, 0), "node", 0, 0), "node", error)
        assert failure.kind is FailureKind.OUT_OF_MEMORY, failure
        del error
    group.sweep()
    devices.give_back(str(bench.device))
    _, again = _trained(bench, path)
    assert again == loss, f"{again} and {loss}: the unit after is another"
    return f"with {rows} rows a batch"


def memory(bench: Bench) -> str:
    """Resident and device memory after units 1 and 10: they do not grow."""
    device, after = str(bench.device), []
    for number in range(10):
        _trained(bench, "single, float32")
        if number in (0, 9):
            after.append(in_use(device))
    assert after[1][1] <= after[0][1] + (1 << 20), f"device memory grows: {after}"
    return "; ".join(f"host {host / 1e9:.2f} GB, device {own / 1e6:.0f} MB" for host, own in after)


def hops(bench: Bench) -> str:
    """A state of 0.1, 1 and 10 GB is saved and loaded: GB/s, as far as memory and disk allow."""
    told = []
    for size in HOPS_BYTES:
        free = devices.free_bytes(str(bench.device)) or 0
        if 2 * size > min(free, shutil.disk_usage(bench.folder).free, 4 * devices_free_of_host()):
            told.append(f"{size / 1e9:g} GB left out")
            continue
        state = {"model": {"w": torch.ones(size // 4, device=bench.device)}}
        began = time.perf_counter()
        ref = checkpoint.save(state, str(bench.folder / f"hop-{size}"))
        saved = time.perf_counter()
        there = checkpoint.load(ref)["model"]["w"].to(bench.device)
        devices.synchronize(str(bench.device))
        rates = (size / (saved - began) / 1e9, size / (time.perf_counter() - saved) / 1e9)
        assert torch.equal(there, state["model"]["w"])
        told.append(f"{size / 1e9:g} GB: save {rates[0]:.2f}, load {rates[1]:.2f} GB/s")
        checkpoint.remove(ref)
    return "; ".join(told)


def devices_free_of_host() -> int:
    pages: int = os.sysconf("SC_AVPHYS_PAGES")
    return pages * os.sysconf("SC_PAGE_SIZE")


def two(bench: Bench) -> str:
    """With two GPUs: ddp and fsdp run and are replayed; code that names no number is on the rank's own."""
    if devices.count_here() < 2:
        return "left out: there is one device"
    for name in ("ddp", "fsdp"):
        bench.cerebro("run", bench.recipe(name, nodes=1, node={"ranks": 2}, parallelism=name, epochs=1))
        assert "bit-identical" in bench.cerebro("replay", name)
    return "ddp, fsdp"


def checked(bench: Bench) -> str:
    """Units equal an ordinary fit on the device."""
    said = bench.cerebro("check", "recipes/digits.yaml")
    rows = [line for line in said.splitlines() if " equal " in line]
    assert rows, said
    return "; ".join(" ".join(row.split()) for row in rows)


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return False
    return False


STEPS = (seen, run, checked, repeats, paths, out_of_memory, memory, hops, killed, sharing, two)
"""The shortest first: a loan may end before the last."""


def tried(bench: Bench, step: Callable[[Bench], str]) -> bool:
    """Whether the step passes; prints its line."""
    began = time.monotonic()
    try:
        verdict, detail = "PASS", step(bench)
    except Exception as error:
        traceback.print_exc()
        verdict, detail = "FAIL", f"{type(error).__name__}: {str(error).strip()[:300]}"
    group.sweep()
    bench.results.append((step.__name__, verdict, detail))
    print(f"{verdict} {step.__name__} ({time.monotonic() - began:.0f} s): {detail}", flush=True)
    return verdict == "PASS"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [step.__name__ for step in STEPS]
    parser.add_argument("--only", default=",".join(names), help=f"of {', '.join(names)}")
    kind = devices.kind_here()
    for name, gpu, cpu in (("width", 768, 64), ("depth", 12, 2), ("rows", 64, 16), ("steps", 20, 5)):
        parser.add_argument(f"--{name}", type=int, default=cpu if kind == devices.CPU else gpu)
    options = parser.parse_args()
    device = devices.device_of(kind, 0)
    devices.use(device)
    with tempfile.TemporaryDirectory(prefix="cerebro-gpu-") as folder:
        bench = Bench(
            torch.device(device), options.width, options.depth, options.rows, options.steps, Path(folder)
        )
        passed = [tried(bench, step) for step in STEPS if step.__name__ in options.only.split(",")]
        print(f"\n| step | {devices.hardware_here()} |\n|---|---|")
        for name, verdict, detail in bench.results:
            print(f"| {name}: {STEPS[names.index(name)].__doc__} | {verdict}: {detail} |")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
