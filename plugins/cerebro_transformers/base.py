"""A base model: a folder with a model of transformers and its tokenizer."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from cerebro_elastic.extending.errors import TaskError, did_you_mean

logging.set_verbosity_error()
logging.disable_progress_bar()

_LONGEST = 1024
"""The most tokens of a sequence, if the recipe gives none."""
_CLASSES: dict[str, Any] = {
    "causal-lm": AutoModelForCausalLM,
    "sequence-classification": AutoModelForSequenceClassification,
}


@functools.lru_cache(maxsize=8)
def base_of(model: str, root: str, download: bool) -> Base:
    """The base ``model``: a folder, seen from ``root``, or a name of the hub if ``download``.

    Raises ``TaskError`` if it is not there or has no model that transformers know.
    """
    folder = Path(root, Path(model).expanduser())
    if not folder.is_dir() and not download:
        raise TaskError(
            f"task.model is {model!r}, and there is no folder {folder}: give the folder of a model and its tokenizer "
            "(what `save_pretrained` writes), on every machine; or set task.download: true to take this name from "
            "the Hugging Face hub"
        )
    return Base(str(folder) if folder.is_dir() else model, download)


class Base:
    """The base at ``source``; its weights are read for each model that is made."""

    def __init__(self, source: str, download: bool) -> None:
        self.source = source
        self._how: dict[str, Any] = {"local_files_only": not download, "trust_remote_code": False}
        self.config = self._read(AutoConfig, "config.json")

    @functools.cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer. Raises ``TaskError`` if it does not fit."""
        tokenizer = self._read(AutoTokenizer, "tokenizer.json and tokenizer_config.json")
        rows = self.config.get_text_config().vocab_size
        if (last := max(tokenizer.get_vocab().values(), default=-1)) >= rows:
            raise TaskError(
                f"task.model: the tokenizer in {self.source} has tokens up to {last}, and the model's embeddings "
                f"have {rows} rows: take the tokenizer that the model was trained with, or resize the model's "
                "embeddings (`resize_token_embeddings`) and save it again"
            )
        return tokenizer

    @property
    def pad(self) -> int:
        """The token that fills sequences up. It is no label, and no other token sees it."""
        token: int | None = self.tokenizer.pad_token_id
        return token or 0

    def length(self, wanted: int | None) -> int:
        """The most tokens of a sequence. Raises ``TaskError`` if the model does not take the ``wanted``
        number."""
        most: int | None = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        if wanted is not None and most is not None and wanted > most:
            raise TaskError(
                f"task.length is {wanted}, and the model in {self.source} takes {most} tokens at most: give at most "
                f"{most}"
            )
        return wanted or min(most or _LONGEST, _LONGEST)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, each with the token that ends a text, if there is one."""
        end = self.tokenizer.eos_token_id
        rows: list[list[int]] = self.tokenizer(list(texts), return_attention_mask=False)["input_ids"]
        return [row if end is None or row[-1:] == [end] else [*row, end] for row in rows]

    def model(self, objective: str, labels: int | None, dtype: str) -> Any:
        """The model with the base's weights. Layers that these lack are drawn at random."""
        made = self._read(
            _CLASSES[objective],
            "model.safetensors",
            config=self._config(objective, labels),
            dtype=dtype,
            use_safetensors=True,
        )
        made.train()
        return made

    def hollow(self, objective: str, labels: int | None) -> Any:
        """The same without values: it takes no memory."""
        with torch.device("meta"):
            return _CLASSES[objective].from_config(self._config(objective, labels))

    def _config(self, objective: str, labels: int | None) -> Any:
        config = type(self.config).from_dict(self.config.to_dict())
        if objective == "causal-lm":
            config.use_cache = False
        else:
            config.num_labels = labels
            if config.pad_token_id is None:
                config.pad_token_id = self.pad
        return config

    def _read(self, kind: Any, needs: str, **arguments: Any) -> Any:
        try:
            return kind.from_pretrained(self.source, **self._how, **arguments)
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as exc:
            reason = " ".join(str(exc).split())
            raise TaskError(
                f"task.model: {self.source} cannot be read as a model of transformers {transformers.__version__}: "
                f"{reason}; it needs {needs}, as `save_pretrained` writes them"
            ) from exc


_LAYERS = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d)


def layers_of(model: nn.Module) -> list[str]:
    """The names of the layers that may get an adapter."""
    known = ((name, type(module)) for name, module in model.named_modules())
    return [name for name, kind in known if issubclass(kind, _LAYERS) or kind.__name__ == "Conv1D"]


def check_targets(model: nn.Module, targets: str | Iterable[str] | None) -> None:
    """Raise ``TaskError`` unless each of the ``target_modules`` is a layer of the model."""
    if targets is None or isinstance(targets, str):
        return
    layers = layers_of(model)
    ends = sorted({name.rpartition(".")[2] for name in layers})
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            raise TaskError(
                f"target_modules: no layer of the model is named {target!r}; {did_you_mean(target, ends)}"
            )
