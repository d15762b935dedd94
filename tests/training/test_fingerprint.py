"""Long values have other digests wherever they differ."""

from __future__ import annotations

import pytest
import torch

from cerebro_elastic.training.fingerprint import fingerprints


@pytest.mark.parametrize("place", [0, 2047, 2048, 4095, 4096, 4999])
def test_each_value_of_a_long_tensor_counts(place: int) -> None:
    """Also those at the end, which fill no whole row of those that are summed."""
    tensor = torch.arange(5_000, dtype=torch.float32)
    other = tensor.clone()
    other.view(torch.int32)[place] ^= 1
    texts = [fingerprints({"weight": {"w": each}}) for each in (tensor, tensor.clone(), other)]
    assert texts[0] == texts[1] != texts[2]
