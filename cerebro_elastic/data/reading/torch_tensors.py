"""A batch of tensors of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate


class TorchTensors:
    """The tensors of ``batch_arrays.batch_arrays``."""

    def of(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array)

    def decoded(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        return torch.from_numpy(np.array(value))  # a copy: what PIL gives may not be written to

    def stacked(self, rows: Sequence[Tensor]) -> Tensor:
        stacked: Tensor = default_collate(list(rows))  # in a worker process, in memory its rank can read
        return stacked
