"""Pictures with boxes to find: red and blue rectangles, and a detector that looks at a grid of cells."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss


def load():
    """PNGs, and of the one to four objects of each the boxes (x0, y0, x1, y1) and kinds."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(1500):
        pixels, kinds = rng.integers(0, 90, (64, 64, 3), np.uint8), rng.integers(0, 2, rng.integers(1, 5))
        corners = rng.integers(0, 44, (len(kinds), 2))
        boxes = np.hstack([corners, corners + rng.integers(8, 20, corners.shape)])
        for kind, (x0, y0, x1, y1) in zip(kinds, boxes, strict=True):
            pixels[y0:y1, x0:x1, 2 * kind] = 220
        Image.fromarray(pixels).save(png := io.BytesIO(), "png")
        rows.append((png.getvalue(), boxes.astype(np.float32) / 64, kinds))
    return dict(zip(("image", "boxes", "kinds"), zip(*rows, strict=True), strict=True))


def open_image(png):
    return torch.from_numpy(np.array(Image.open(io.BytesIO(png)))).permute(2, 0, 1) / 255


def detector(width):
    """Of each of 8 x 8 cells: is the middle of an object in it, its kind (two scores), and its box."""
    convs = [nn.Conv2d(ins, width, 3, step, 1) for ins, step in ((3, 2), (width, 2), (width, 2), (width, 1))]
    return nn.Sequential(*(layer for conv in convs for layer in (conv, nn.ReLU())), nn.Conv2d(width, 7, 1))


def loss(output, objects):
    boxes, kinds = map(torch.cat, objects)
    picture = torch.arange(len(output)).repeat_interleave(torch.tensor([len(k) for k in objects[1]]))
    column, row = ((boxes[:, :2] + boxes[:, 2:]) * 4).long().T
    guess, there = output[picture, :, row, column], torch.zeros_like(output[:, 0])
    there[picture, row, column] = 1
    confidence = binary_cross_entropy_with_logits(output[:, 0], there)
    return 10 * confidence + cross_entropy(guess[:, 1:3], kinds) + 5 * l1_loss(guess[:, 3:], boxes)


def to_input(batch):
    images, *objects = batch
    return torch.stack(images), objects
