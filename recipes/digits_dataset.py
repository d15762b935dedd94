"""A Dataset as anybody writes one: nothing in it knows of cerebro-elastic."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


class Shifted(Dataset):
    """Handwritten digits, shifted by up to so many ``pixels`` in each direction."""

    def __init__(self, pixels):
        self.digits, self.pixels = load_digits(), pixels

    def __len__(self):
        return len(self.digits.target)

    def __getitem__(self, row):
        image = torch.tensor(self.digits.images[row], dtype=torch.float32)[None] / 16
        shifts = torch.randint(-self.pixels, self.pixels + 1, (2,)).tolist()
        return torch.roll(image, shifts, (1, 2)), int(self.digits.target[row])
