"""Plain PyTorch: where the data come from, how a batch is made ready, and the model."""

from sklearn.datasets import load_digits
from torch import nn


def load():
    """Handwritten digits: 1,797 images of 8 x 8 pixels from 0 to 16, which scikit-learn ships."""
    digits = load_digits()
    return {"image": digits.images.astype("uint8"), "label": digits.target}


def to_input(batch):
    image, label = batch
    return image.unsqueeze(1) / 16, label


def model(width, dropout=0.0):
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(16 * width, 10),
    )  # fmt: skip
