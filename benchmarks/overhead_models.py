"""The models of ``overhead.py``: a multi-layer perceptron of 0.5 M parameters, a ResNet-18 of 11.2 M."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 200), nn.ReLU(), nn.Linear(200, 10))


def resnet18() -> nn.Module:
    """ResNet-18 for 32 x 32 images (He et al. 2016, with the stem usual for CIFAR)."""
    stages = [_stage(64, 64, 1), _stage(64, 128, 2), _stage(128, 256, 2), _stage(256, 512, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *stages, *head)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def _stage(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(_Block(inputs, outputs, stride), _Block(outputs, outputs, 1))


def make(name: str, lr: float, momentum: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer, as ``model_fn`` of the benchmark's recipes."""
    model = {"mlp": mlp, "resnet18": resnet18}[name]()
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
