"""Texts as sequences of tokens: what a model takes for a batch, with its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cerebro_elastic.extending.errors import TaskError

IGNORED = -100
"""The label of what has none."""
Text: TypeAlias = Sequence[tuple[int, bool]]
"""Tokens, and whether the model learns to predict each."""


def packed(texts: Sequence[Text], length: int, pad: int) -> dict[str, Tensor]:
    """Sequences of ``length`` tokens that have the texts one behind another; one that is alone may be
    shorter.

    Positions begin anew with each text, and where a text goes on in the next sequence: by them the model sees
    that a text is not to attend to others. A text's first token is no label.
    """
    rows: list[list[tuple[int, int, int]]] = [[]]
    for text in texts:
        for piece in _pieces(text, length, rows):
            rows[-1] += [
                (token, at, token if at and learned else IGNORED) for at, (token, learned) in enumerate(piece)
            ]
    width = length if rows[1:] else max(1, len(rows[0]))
    rows[-1] += [(pad, at, IGNORED) for at in range(width - len(rows[-1]))]
    columns = torch.tensor(rows, dtype=torch.int64).unbind(-1)
    return dict(zip(("input_ids", "position_ids", "labels"), columns, strict=True))


def _pieces(text: Text, length: int, rows: list[list[Any]]) -> Iterator[Text]:
    """The text, cut where the last of the ``rows`` is full and another begins."""
    while text:
        if len(rows[-1]) == length:
            rows.append([])
        room = length - len(rows[-1])
        yield text[:room]
        text = text[room:]


def single(texts: Sequence[Text], length: int, pad: int, truncate: bool) -> dict[str, Tensor]:
    """A sequence for each text, padded to the longest. A model that looks back only does not see what
    follows."""
    if not truncate:
        check_length(max(map(len, texts)), length)
    rows = [torch.tensor([*text[:length]] or [(pad, False)], dtype=torch.int64) for text in texts]
    tokens = pad_sequence([row[:, 0] for row in rows], batch_first=True, padding_value=pad)
    learned = pad_sequence([row[:, 1] for row in rows], batch_first=True, padding_value=0)
    learned[:, 0] = 0
    return {"input_ids": tokens, "labels": torch.where(learned == 1, tokens, IGNORED)}


def labelled(
    tokenizer: Any, texts: Sequence[list[str]], labels: Sequence[Any], length: int, truncate: bool
) -> dict[str, Tensor]:
    """Texts, or pairs of texts, each with its class."""
    of_class = labels[0] if len(labels) == 1 and isinstance(labels[0], Tensor) else None
    if of_class is None or of_class.is_floating_point() or len(texts) > 2:
        raise TaskError(
            "sequence-classification takes one or two columns of text and one of classes, whole numbers: "
            "choose them by data.columns, and name the class in data.encode if it is text"
        )
    cut = {"truncation": True, "max_length": length} if truncate else {}
    encoded = tokenizer(*texts, padding=True, return_tensors="pt", **cut)
    check_length(encoded["input_ids"].shape[1], length)
    return {**encoded, "labels": of_class}


def check_length(longest: int, length: int) -> None:
    """Raise ``TaskError`` if a text has more than ``length`` tokens."""
    if longest > length:
        raise TaskError(
            f"a text of the batch has {longest} tokens, more than length {length}: set task.truncate: true "
            "to cut off what is longer, a greater task.length if the model takes it, or shorten the texts"
        )
