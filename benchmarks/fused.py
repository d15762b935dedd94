"""What K small networks gain that are trained as one: their weights stacked, a step of all by ``baddbmm``.

    python benchmarks/fused.py [--members 8] [--rounds 5]

Each member has an optimizer of its own, on views of the stacked weights. For each width it prints how long
the members take one by one, in times of the fused step, and whether weights have the same bits. The modules
are those of which a stacked form keeps bits: linear layers and ReLU. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

INPUTS, CLASSES, STEPS = 64, 10, 60
OPTIMIZERS: dict[str, Callable[[Sequence[Tensor], float], torch.optim.Optimizer]] = {
    "SGD with momentum": lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=0.9),
    "Adam": lambda weights, lr: torch.optim.Adam(weights, lr=lr / 10),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, optimizer in OPTIMIZERS.items():
        for rows in (32, 128):
            for width in (16, 32, 64, 128, 256):
                ratios, same = [], True
                for _ in range(options.rounds):
                    alone, of_alone = timed(one_by_one, optimizer, options.members, width, rows)
                    fused, of_fused = timed(stacked, optimizer, options.members, width, rows)
                    ratios.append(alone / fused)
                    same &= all(map(torch.equal, of_alone, of_fused))
                ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                print(f"{name}, batches of {rows}, width {width}: {ratio}, {'equal' if same else 'DIFFERS'}")


def timed(
    train: Callable[..., list[Tensor]], optimizer: Callable[..., torch.optim.Optimizer], *shape: int
) -> tuple[float, list[Tensor]]:
    members, width, rows = shape
    models = [mlp(width, seed) for seed in range(members)]
    began = time.perf_counter()
    weights = train(models, optimizer, list(batches(rows)))
    return time.perf_counter() - began, weights


def mlp(width: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def batches(rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of one partition, which all members take in the same order."""
    torch.manual_seed(99)
    for _ in range(STEPS):
        yield torch.randn(rows, INPUTS), torch.randint(CLASSES, (rows,))


def one_by_one(
    models: Sequence[nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer],
    data: Sequence[tuple[Tensor, Tensor]],
) -> list[Tensor]:
    for member, model in enumerate(models):
        own = optimizer(list(model.parameters()), 0.01 * (member + 1))
        for x, y in data:
            own.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            own.step()
    return [weight.detach() for model in models for weight in model.parameters()]


def stacked(
    models: Sequence[nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer],
    data: Sequence[tuple[Tensor, Tensor]],
) -> list[Tensor]:
    columns = zip(*(model.parameters() for model in models), strict=True)
    weights = [torch.stack([each.detach() for each in column]).requires_grad_() for column in columns]
    members = range(len(models))
    views = [[weight.detach()[member].requires_grad_() for weight in weights] for member in members]
    own = [optimizer(views[member], 0.01 * (member + 1)) for member in members]
    for x, y in data:
        loss = sum(
            functional.cross_entropy(out, y) for out in forward(weights, x.expand(len(models), -1, -1))
        )
        for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = grad
        for member in members:
            for view, weight in zip(views[member], weights, strict=True):
                assert weight.grad is not None
                view.grad = weight.grad[member]
            own[member].step()
    return [view.detach() for member in members for view in views[member]]


def forward(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """The outputs of all members: (members, rows, classes)."""
    for at in range(0, len(weights), 2):
        x = torch.baddbmm(weights[at + 1].unsqueeze(1), x, weights[at].transpose(1, 2))
        x = x if at + 2 == len(weights) else functional.relu(x)
    return x


if __name__ == "__main__":
    main()
