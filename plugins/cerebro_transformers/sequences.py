"""Texts as sequences of tokens: a model's inputs for a batch, with its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cerebro_elastic.extending.errors import TaskError

Batch: TypeAlias = tuple[dict[str, Tensor], Tensor]
"""The model's inputs, and the labels."""
Labels: TypeAlias = int | Sequence[str]
"""The number of classes, or their names."""
IGNORED = -100
"""The label of a token that has none."""
Text: TypeAlias = Sequence[tuple[int, bool]]
"""Tokens, and whether the model learns to predict each."""


def packed(texts: Sequence[Text], length: int, pad: int) -> dict[str, Tensor]:
    """Sequences of ``length`` tokens that have the texts one behind another; one that is alone may be
    shorter.

    Positions restart with each text, and where a text continues in the next sequence: by them the model sees
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
    """A sequence for each text, padded to the longest. A model that looks back only does not see the
    padding."""
    if not truncate:
        check_length(max(map(len, texts)), length)
    rows = [torch.tensor([*text[:length]] or [(pad, False)], dtype=torch.int64) for text in texts]
    tokens = pad_sequence([row[:, 0] for row in rows], batch_first=True, padding_value=pad)
    learned = pad_sequence([row[:, 1] for row in rows], batch_first=True, padding_value=0)
    learned[:, 0] = 0
    return {"input_ids": tokens, "labels": torch.where(learned == 1, tokens, IGNORED)}


def pairs(chosen: Sequence[Text], rejected: Sequence[Text], length: int, pad: int, truncate: bool) -> Batch:
    """Texts: the first half is rejected, the second is chosen instead. Each pair's label marks the second as
    the better one."""
    texts = single([*rejected, *chosen], length, pad, truncate)
    return texts, torch.ones(len(chosen), dtype=torch.int64)


def labelled(
    tokenizer: Any,
    texts: Sequence[list[str]],
    others: Sequence[Any],
    classes: Labels | None,
    length: int,
    truncate: bool,
) -> dict[str, Tensor]:
    """Texts, or pairs of texts, each with its class."""
    of_class = others[0] if len(others) == 1 and isinstance(others[0], Tensor) else None
    if of_class is None or of_class.is_floating_point() or len(texts) > 2:
        raise TaskError(
            "sequence-classification takes one or two columns of text and one of classes, whole numbers: "
            "choose them by data.columns, and name the class in data.encode if it is text"
        )
    _check_classes(of_class, classes)
    return {**_padded(tokenizer, texts, length, truncate), "labels": of_class}


def tagged(
    tokenizer: Any,
    texts: Sequence[list[str]],
    others: Sequence[Any],
    classes: Labels | None,
    length: int,
    truncate: bool,
) -> dict[str, Tensor]:
    """Texts with a class for each word. A word's first token has its class, its other tokens have none."""
    if len(texts) == 2 and not others:
        of_words = [[_class_of(tag, classes) for tag in row.split()] for row in texts[1]]
    elif len(texts) == 1 and len(others) == 2 and all(isinstance(each, Tensor) for each in others):
        rows, lengths = others
        of_words = [row[:count].tolist() for row, count in zip(rows, lengths.tolist(), strict=True)]
    else:
        raise TaskError(
            "token-classification takes a column of text, words with spaces between them, and one of their "
            "classes: text of as many names or numbers, or sequences of whole numbers; choose them by "
            "data.columns"
        )
    words = [text.split() for text in texts[0]]
    for text, own, tags in zip(texts[0], words, of_words, strict=True):
        if len(own) != len(tags):
            raise TaskError(
                f"a text of {len(own)} words has {len(tags)} classes: give each word one; the text begins "
                f"{text[:40]!r}"
            )
    _check_classes(torch.tensor([tag for tags in of_words for tag in tags], dtype=torch.int64), classes)
    encoded = _padded(tokenizer, [words], length, truncate, is_split_into_words=True)
    labels = torch.full_like(encoded["input_ids"], IGNORED)
    for row, tags in enumerate(of_words):
        before = None
        for at, word in enumerate(encoded.word_ids(row)):
            if word is not None and word != before:
                labels[row, at] = tags[word]
            before = word
    return {**encoded, "labels": labels}


def _padded(tokenizer: Any, texts: Sequence[Any], length: int, truncate: bool, **how: Any) -> Any:
    """The tokens of columns of text, padded to the longest row."""
    cut = {"truncation": True, "max_length": length} if truncate else {}
    encoded = tokenizer(*texts, padding=True, return_tensors="pt", **cut, **how)
    check_length(encoded["input_ids"].shape[1], length)
    return encoded


def count_of(classes: Labels) -> int:
    """The number of classes."""
    return classes if isinstance(classes, int) else len(classes)


def _class_of(tag: str, classes: Labels | None) -> int:
    if isinstance(classes, Sequence) and tag in classes:
        return list(classes).index(tag)
    if isinstance(classes, Sequence) or not tag.isdecimal():
        known = ", ".join(classes) if isinstance(classes, Sequence) else f"the numbers below {classes}"
        raise TaskError(
            f"a word has the class {tag!r}, and the classes are {known}: name them all in task.labels"
        )
    return int(tag)


def _check_classes(of_rows: Tensor, classes: Labels | None) -> None:
    """Raise ``TaskError`` for a class that is none of the ``classes``."""
    if classes is None or not len(of_rows):
        return
    least, most = int(of_rows.min()), int(of_rows.max())
    if least < 0 or most >= count_of(classes):
        raise TaskError(
            f"the data have a class {least if least < 0 else most}, and task.labels gives "
            f"{count_of(classes)}, from 0 to {count_of(classes) - 1}: correct task.labels, or the data"
        )


def check_length(longest: int, length: int) -> None:
    """Raise ``TaskError`` if a text has more than ``length`` tokens."""
    if longest > length:
        raise TaskError(
            f"a text of the batch has {longest} tokens, more than length {length}: set task.truncate: true "
            "to cut off longer ones, a greater task.length if the model takes it, or shorten the texts"
        )
