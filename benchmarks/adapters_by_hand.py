"""A sweep of adapters by ``cerebro run`` and by hand: makespan, memory, bytes written.

    python benchmarks/adapters_by_hand.py recipes/lora_sweep.yaml

By hand means what somebody would write without this package: as many processes as the recipe has nodes take
the configs in turn. A process reads the base for each config, puts an adapter of PEFT on it, trains it in a
loop over the same texts, validates after each epoch, and saves the adapter and the optimizer's state after
each epoch, so that it could go on. Where the base's folder is not beside the recipe, a GPT of bytes is drawn,
of ``width`` and ``layers``. At the default size both together take about three minutes on 2 cores.

Printed are for both: seconds from start to end, the greatest memory of all processes together (PSS, read each
second) and the bytes that they have written to disk (``write_bytes`` of ``/proc``; etcd's count as well).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cerebro_elastic
from cerebro_elastic.extending.tasks import select_arguments
from cerebro_elastic.recipes import Recipe

EVERY_SECONDS = 1.0


def sweep(recipe: Recipe) -> list[dict[str, Any]]:
    """The configs of the recipe's grid."""
    from itertools import product

    space = recipe.search.space
    return [
        dict(zip(space, values, strict=True))
        for values in product(*(domain.choice or () for domain in space.values()))
    ]


def draw(folder: Path, width: int, layers: int) -> None:
    """A base that has learned nothing, which takes as long."""
    from transformers import ByT5Tokenizer, GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=384, n_embd=width, n_layer=layers, n_head=8, n_positions=128)
    GPT2LMHeadModel(config).save_pretrained(folder)
    ByT5Tokenizer().save_pretrained(folder)


def by_hand(path: Path, process: int) -> None:
    """One of the processes: its share of the configs, one after another."""
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    from cerebro_elastic.registry import import_object
    from cerebro_transformers import functions

    torch.set_num_threads(1)
    recipe = cerebro_elastic.load_recipe(path)
    task = recipe.task.model_dump(exclude_none=True)
    given = {**task, **task.get("lora", {}), "root": str(path.parent)}
    columns = import_object(str(recipe.data.source), path.parent)()
    rows = len(next(iter(columns.values())))
    cut, size = int(rows * (1 - float(recipe.data.valid or 0.0))), recipe.data.batch_size
    starts = range(0, cut, size)

    def batch(chosen: list[int], values: dict[str, Any]) -> Any:
        picked = [[column[row] for row in chosen] for column in columns.values()]
        parts = tuple(each if isinstance(each[0], bytes) else torch.tensor(each) for each in picked)
        arguments = select_arguments(functions.batch, values)
        return functions.batch(parts if len(parts) > 1 else parts[0], **arguments)

    for number, config in enumerate(sweep(recipe)):
        if number % recipe.nodes.min != process:
            continue
        values = {**given, **config, "steps": recipe.epochs * len(starts)}
        torch.manual_seed(recipe.seed or 0)
        arguments = select_arguments(functions.make, values)
        model, optimizer, schedule = functions.make(**arguments)
        for epoch in range(recipe.epochs):
            order = torch.randperm(cut).tolist()
            model.train()
            for start in starts:
                inputs, labels = batch(order[start : start + size], values)
                optimizer.zero_grad()
                functions.loss(model(inputs), labels).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
            model.eval()
            total = 0.0
            with torch.no_grad():
                for start in range(cut, rows, size):
                    chosen = list(range(start, min(start + size, rows)))
                    inputs, labels = batch(chosen, values)
                    total += functions.loss(model(inputs), labels).item() * len(chosen)
            folder = Path("by_hand", f"{number}-{epoch}")
            folder.mkdir(parents=True)
            weights = get_peft_model_state_dict(model.inner)
            save_file(
                {name: value.contiguous() for name, value in weights.items()}, folder / "adapter.safetensors"
            )
            torch.save([optimizer.state_dict(), schedule.state_dict()], folder / "optimizer.pt")
            print(f"config {number} epoch {epoch}: val_loss {total / (rows - cut):.4f}", file=sys.stderr)


def measured(commands: list[list[str]], folder: Path) -> dict[str, float]:
    """What the commands take that run beside one another, with all that they start."""
    began = time.perf_counter()
    with (folder / "log").open("w") as log:
        started = [
            subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
            for command in commands
        ]
        most, written = 0, dict[int, int]()
        while any(process.poll() is None for process in started):
            alive = [each for process in started for each in family(process.pid)]
            most = max(most, sum(pss(each) for each in alive))
            written |= {each: bytes_of(each, written.get(each, 0)) for each in alive}
            time.sleep(EVERY_SECONDS)
    seconds = time.perf_counter() - began
    if any(process.returncode for process in started):
        raise SystemExit((folder / "log").read_text())
    return {"seconds": seconds, "memory_mb": most / 1e6, "written_mb": sum(written.values()) / 1e6}


def family(process: int) -> list[int]:
    """A process, and all that come from it."""
    found = [process]
    for each in found:
        for tasks in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, tasks.read_text().split())
            except OSError:
                continue
    return found


def pss(process: int) -> int:
    """Bytes of a process, those that it shares divided by the number of sharers."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def bytes_of(process: int, known: int) -> int:
    """Bytes that a process has written, as long as it can be asked."""
    try:
        lines = Path(f"/proc/{process}/io").read_text().splitlines()
    except OSError:
        return known
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), known)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--draw", type=Path, help="write a base into this folder, and do nothing else")
    parser.add_argument("--process", type=int, help="be this process of those by hand")
    options = parser.parse_args()
    if options.draw is not None:
        draw(options.draw, options.width, options.layers)
        return
    if options.process is not None:
        by_hand(options.recipe, options.process)
        return
    recipe = cerebro_elastic.load_recipe(options.recipe)
    results = {}
    model = str(recipe.task.model_dump()["model"])
    with tempfile.TemporaryDirectory() as name:
        base = options.recipe.parent / model
        if not base.is_dir() and ":" not in model:  # else it is that of a package
            base = Path(name, model)
            draws = [sys.executable, str(Path(__file__).resolve()), str(options.recipe), "--draw", str(base)]
            size = [f"--width={options.width}", f"--layers={options.layers}"]
            subprocess.run([*draws, *size], check=True)
        for arm in ("cerebro run", "by hand"):
            folder = Path(name, arm.replace(" ", "_"))
            folder.mkdir()
            for file in options.recipe.parent.glob(f"{options.recipe.stem}.*"):
                shutil.copy(file, folder)
            if base.is_dir():
                shutil.copytree(base, folder / model)
            path = str(folder / options.recipe.name)
            os.sync()
            if arm == "cerebro run":
                commands = [[sys.executable, "-m", "cerebro_elastic.cli", "run", path]]
            else:
                this = [sys.executable, str(Path(__file__).resolve()), path]
                commands = [[*this, "--process", str(process)] for process in range(recipe.nodes.min)]
            results[arm] = measured(commands, folder)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
