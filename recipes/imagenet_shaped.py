"""Random crops of JPEGs, and a small ResNet."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn


def crop(jpeg, training, side=32):
    """A random crop for training, the middle for validation: (3, side, side)."""
    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    picture = picture.resize([max(n, n * side // min(picture.size)) for n in picture.size])
    pixels = torch.from_numpy(np.array(picture)) / 255
    room = torch.tensor(pixels.shape[:2]) - side
    top, left = (torch.rand(2) * (room + 1)).long() if training else room // 2
    return pixels[top : top + side, left : left + side].permute(2, 0, 1)


class Residual(nn.Sequential):
    def forward(self, x):
        return torch.relu(x + super().forward(x))


def resnet(width, classes=10):
    def conv(*sizes):
        return nn.Sequential(nn.Conv2d(*sizes, bias=False), nn.BatchNorm2d(sizes[1]), nn.ReLU())

    return nn.Sequential(
        conv(3, width, 3, 2), Residual(conv(width, width, 3, 1, 1)), conv(width, 2 * width, 3, 2),
        Residual(conv(2 * width, 2 * width, 3, 1, 1)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2 * width, classes),
    )  # fmt: skip
