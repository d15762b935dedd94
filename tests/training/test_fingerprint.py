"""Long values have other digests wherever they differ."""

from __future__ import annotations

import pytest
import torch

from cerebro_elastic.training.fingerprint import fingerprints


@pytest.mark.parametrize("place", [0, 2047, 2048, 4095, 4096, 4999])
def test_each_value_of_a_long_tensor_counts(place: int) -> None:
    tensor = torch.arange(5_000, dtype=torch.float32)
    other = tensor.clone()
    other.view(torch.int32)[place] ^= 1
    assert text(tensor) == text(tensor.clone()) != text(other)


def test_signs_of_zeros_count() -> None:
    """As two highest bits of words, of which a sum modulo 2**64 is the same."""
    zeros = torch.zeros(4_096, dtype=torch.float64)
    assert text(zeros) != text(-zeros)


def text(tensor: torch.Tensor) -> str:
    return fingerprints({"weight": {"w": tensor}})["weight w"]
