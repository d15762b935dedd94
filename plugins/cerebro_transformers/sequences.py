"""Texts as sequences of tokens: what a model takes for a batch, with its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cerebro_elastic.extending.errors import TaskError

IGNORED = -100
"""The label of what has none."""


def packed(texts: Sequence[list[int]], length: int, pad: int) -> dict[str, Tensor]:
    """Sequences of ``length`` tokens that have the texts one behind another.

    Positions begin anew with each text, and where a text goes on in the next sequence: by them the model sees that
    a text is not to attend to others. A text's first token is no label.
    """
    rows: list[list[tuple[int, int, int]]] = [[]]
    for text in texts:
        for piece in _pieces(text, length, rows):
            rows[-1] += [(token, at, token if at else IGNORED) for at, token in enumerate(piece)]
    rows[-1] += [(pad, at, IGNORED) for at in range(length - len(rows[-1]))]
    columns = torch.tensor(rows, dtype=torch.int64).unbind(-1)
    return dict(zip(("input_ids", "position_ids", "labels"), columns, strict=True))


def _pieces(text: list[int], length: int, rows: list[list[Any]]) -> Iterator[list[int]]:
    """The text, cut where the last of the ``rows`` is full and another begins."""
    while text:
        if len(rows[-1]) == length:
            rows.append([])
        room = length - len(rows[-1])
        yield text[:room]
        text = text[room:]


def single(texts: Sequence[list[int]], length: int, pad: int, truncate: bool) -> dict[str, Tensor]:
    """A sequence for each text, padded to the longest. A model that looks back only never sees what follows."""
    rows = [torch.tensor(text[:length], dtype=torch.int64) for text in texts]
    if not truncate:
        check_length(max(map(len, texts)), length)
    labels = pad_sequence(rows, batch_first=True, padding_value=IGNORED)
    labels[:, 0] = IGNORED
    return {"input_ids": pad_sequence(rows, batch_first=True, padding_value=pad), "labels": labels}


def check_length(longest: int, length: int) -> None:
    """Raise ``TaskError`` if a text has more than ``length`` tokens."""
    if longest > length:
        raise TaskError(
            f"a text of the batch has {longest} tokens, more than length {length}: set task.truncate: true to cut "
            "off what is longer, a greater task.length if the model takes it, or shorten the texts"
        )


def labelled(
    tokenizer: Any, texts: Sequence[list[str]], labels: Sequence[Any], length: int, truncate: bool
) -> dict[str, Tensor]:
    """Texts, or pairs of texts, each with its class."""
    if len(labels) != 1 or not isinstance(labels[0], Tensor) or labels[0].is_floating_point() or len(texts) > 2:
        raise TaskError(
            "sequence-classification takes one or two columns of text and one of classes, whole numbers: choose them "
            "by data.columns, and name the class as data.label"
        )
    cut = {"truncation": True, "max_length": length} if truncate else {}
    encoded = tokenizer(*texts, padding=True, return_tensors="pt", **cut)
    check_length(encoded["input_ids"].shape[1], length)
    return {**encoded, "labels": labels[0]}
