"""The functions of a task of transformers: the model, batches, loss and metrics. A recipe can search their
parameters."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from logging import ERROR, getLogger
from textwrap import shorten
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.helpers import rescale_adapter_scale
from torch import Tensor, nn
from transformers import get_scheduler
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput

from cerebro_elastic.extending.errors import MissingExtra, TaskError
from cerebro_transformers.base import CLASSIFIES, Base, base_of, check_targets, layers_of
from cerebro_transformers.sequences import (
    IGNORED,
    Batch,
    Labels,
    Text,
    count_of,
    labelled,
    packed,
    pairs,
    single,
    tagged,
)

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork


OBJECTIVES = {
    "causal-lm": "CAUSAL_LM",
    "dpo": "CAUSAL_LM",
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
}
"""The objectives, and PEFT's names for them."""
_BELONGS = {
    "pack": ("causal-lm",),
    "chat": ("causal-lm", "dpo"),
    "labels": ("sequence-classification", "token-classification"),
    "beta": ("dpo",),
}
"""The objectives of keys that not all have."""
_SHOWN = 160
"""How many letters of another library's error an error shows."""


class Model(nn.Module):
    """Takes a batch as one argument."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: Mapping[str, Tensor]) -> Any:
        return self.inner(**batch)


class PreferenceModel(Model):
    """Takes pairs of texts, the rejected ones first, and scores each text by DPO (Rafailov et al. 2023).

    A text's reward is ``beta * log(p(text) / q(text))``, where ``q`` is the base, the adapter off. The loss,
    equation 7, is the mean of ``-log sigmoid(reward chosen - reward rejected)``: the cross-entropy of two
    rewards.
    """

    def __init__(self, inner: nn.Module, beta: float) -> None:
        super().__init__(inner)
        self._beta = beta

    def forward(self, batch: Mapping[str, Tensor]) -> SequenceClassifierOutput:
        with torch.no_grad(), rescale_adapter_scale(self.inner, 0.0):
            of_base = self._log_probabilities(batch)
        rewards = self._beta * (self._log_probabilities(batch) - of_base)
        logits = rewards.view(2, -1).T
        chosen = torch.ones(len(logits), dtype=torch.int64, device=logits.device)
        return SequenceClassifierOutput(loss=nn.functional.cross_entropy(logits, chosen), logits=logits)

    def _log_probabilities(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Of each text, all of its labels together."""
        logits = self.inner(input_ids=batch["input_ids"]).logits[:, :-1].float()
        labels = batch["labels"][:, 1:]
        each = nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return -each.view_as(labels).sum(-1)


def _without_dropout(inner: nn.Module) -> None:
    """A base that is compared with itself has none."""
    for module in inner.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or isinstance(module, nn.Dropout)):
                setattr(module, name, 0.0)


def make(
    model: str | Mapping[str, Any],
    root: str,
    lr: float,
    steps: int,
    *,
    objective: str = "causal-lm",
    download: bool = False,
    tokenizer: str | None = None,
    r: int | None = None,
    alpha: float | None = None,
    dropout: float | None = None,
    target_modules: str | Sequence[str] | None = None,
    labels: Labels | None = None,
    beta: float = 0.1,
    dtype: str = "auto",
    quantize: str | None = None,
    gradient_checkpointing: bool = False,
    weight_decay: float = 0.0,
    schedule: str = "linear",
    warmup: float = 0.0,
) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    """``model_fn``: the model, AdamW, and the schedule of the learning rate."""
    inner = base_of(model, root, download, tokenizer).model(objective, labels, dtype, quantize)
    if objective == "dpo":
        _without_dropout(inner)
    if r is not None:
        inner = adapted(inner, objective, r, alpha, dropout or 0.0, target_modules)
    if quantize is not None:
        _leave_out(inner)
    if gradient_checkpointing:
        inner.gradient_checkpointing_enable({"use_reentrant": False})
    trained = [parameter for parameter in inner.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr)
    made = PreferenceModel(inner, beta) if objective == "dpo" else Model(inner)
    if schedule == "constant" and not warmup:
        return made, optimizer, None
    name = "constant_with_warmup" if schedule == "constant" else schedule
    return made, optimizer, get_scheduler(name, optimizer, round(warmup * steps), steps)


def adapted(
    inner: Any,
    objective: str,
    r: int,
    alpha: float | None,
    dropout: float,
    target_modules: str | Sequence[str] | None,
) -> Any:
    """The base with an adapter: all that is trained."""
    config = LoraConfig(
        r=r,
        lora_alpha=r if alpha is None else alpha,  # type: ignore[arg-type]  # its scale is a float
        lora_dropout=dropout,
        target_modules=target_modules if isinstance(target_modules, str | None) else list(target_modules),
        task_type=OBJECTIVES[objective],
        fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in inner.modules()),
    )
    return get_peft_model(inner, config)


def _leave_out(inner: nn.Module) -> None:
    """Leave the matrices of few bits out of states: each unit makes them from the base's files, whose digests
    the run records.

    Those of 4 bits are evaluated as they are trained. On some CPUs bitsandbytes would repack them first,
    which fails for matrices whose sides are no multiples of 32 and 64."""
    bits: Any = import_module("bitsandbytes.nn")

    for module in inner.modules():
        if isinstance(module, bits.Linear4bit):
            module.support_avx512bf16_for_cpu = False
    getLogger("bitsandbytes").setLevel(ERROR)  # on a CPU, evaluation warns of each product with 8 bits
    of_base = tuple(
        f"{name}.{end}"
        for name, module in inner.named_modules()
        if isinstance(module, bits.Linear4bit | bits.Linear8bitLt)
        for end in ("weight", "SCB")
    )

    def of_state(_model: nn.Module, state: dict[str, Any], prefix: str, _local: Any) -> None:
        for name in [name for name in state if name.removeprefix(prefix).startswith(of_base)]:
            del state[name]

    def on_loading(_model: nn.Module, keys: Any) -> None:
        keys.missing_keys[:] = [
            name for name in keys.missing_keys if not name.partition("inner.")[2].startswith(of_base)
        ]

    inner.register_state_dict_post_hook(of_state)  # type: ignore[no-untyped-call]
    inner.register_load_state_dict_post_hook(on_loading)  # type: ignore[no-untyped-call]


def batch(
    columns: Any,
    model: str | Mapping[str, Any],
    root: str,
    *,
    objective: str = "causal-lm",
    download: bool = False,
    tokenizer: str | None = None,
    length: int | None = None,
    pack: bool = True,
    truncate: bool = False,
    chat: str | None = None,
    labels: Labels | None = None,
) -> Batch:
    """``input_fn``: the model's inputs, and the labels."""
    base = base_of(model, root, download, tokenizer)
    texts, others = _parts(columns)
    length = base.length(length)
    if objective == "dpo":
        return pairs(*_compared(base, texts, others, chat), length, base.pad, truncate)
    if objective in CLASSIFIES:
        classified = labelled if objective == "sequence-classification" else tagged
        of_batch = classified(base.tokenizer, texts, others, labels, length, truncate)
    elif len(texts) + len(others) > 1:
        raise TaskError(
            f"causal-lm learns from one column of text, and the batches have {len(texts) + len(others)} "
            "columns: choose one by data.columns"
        )
    else:
        tokens = base.tokens(texts[0]) if chat is None else base.conversations(texts[0], chat)
        of_batch = packed(tokens, length, base.pad) if pack else single(tokens, length, base.pad, truncate)
    return of_batch, of_batch["labels"]


def _compared(
    base: Base, texts: Sequence[list[str]], others: Sequence[Any], chat: str | None
) -> tuple[list[Text], list[Text]]:
    """The chosen texts, and the rejected ones. Their common part cancels out in the loss."""
    columns = (2,) if chat else (2, 3)
    if others or len(texts) not in columns:
        raise TaskError(
            f"dpo{' of conversations' if chat else ''} takes columns of text, "
            f"{'' if chat else '(prompt, chosen, rejected) or '}(chosen, rejected) in this order, and the "
            f"batches have {len(texts)} of text and {len(others)} others: choose them by data.columns, and "
            "name them in data.text"
        )
    *prompt, chosen, rejected = texts
    if prompt:
        return base.answers(prompt[0], chosen), base.answers(prompt[0], rejected)
    if chat:
        return base.conversations(chosen, chat), base.conversations(rejected, chat)
    return base.tokens(chosen), base.tokens(rejected)


def labels_in(labels: Tensor) -> Tensor:
    """How many labels a batch has: the loss is the mean over them."""
    return (labels != IGNORED).sum()


def loss(output: Any, labels: Tensor) -> Tensor:
    """The model's own: the mean over the labels; 0 without labels."""
    value: Tensor = output.loss if labels_in(labels) else output.logits.sum() * 0
    return value


loss.items = labels_in  # type: ignore[attr-defined]


def accuracy(output: Any, labels: Tensor) -> Tensor:
    """The share of labels that the model finds most likely: of texts, of tokens that follow, or of words."""
    logits: Tensor = output.logits
    if labels.dim() > 1 and not isinstance(output, TokenClassifierOutput):  # the label of the next token
        logits, labels = logits[:, :-1], labels[:, 1:]
    counted = labels != IGNORED
    return (logits.argmax(-1) == labels)[counted].double().sum() / counted.sum().clamp(min=1)


def check(
    model: str | Mapping[str, Any],
    root: str,
    *,
    objective: str = "causal-lm",
    download: bool = False,
    tokenizer: str | None = None,
    r: int | None = None,
    alpha: float | None = None,
    dropout: float | None = None,
    target_modules: str | Sequence[str] | None = None,
    labels: Labels | None = None,
    length: int | None = None,
    pack: bool | None = None,
    chat: str | None = None,
    beta: float | None = None,
    quantize: str | None = None,
) -> None:
    """Raise ``TaskError`` if these values cannot be used; of the base only config and tokenizer are read."""
    if r is None:
        of_adapter = {"alpha": alpha, "dropout": dropout, "target_modules": target_modules}
        if given := sorted(name for name, value in of_adapter.items() if value is not None):
            raise TaskError(
                f"{', '.join(given)}: of an adapter, which has no rank: give task.lora.r, or search over r"
            )
    if r is None and objective == "dpo":
        raise TaskError(
            "dpo compares the model with its base, the adapter off: give task.lora.r, or search over r"
        )
    if quantize is not None:
        _check_bits(model, quantize, r)
    classifies = objective in CLASSIFIES
    if classifies and labels is None:
        raise TaskError(f"{objective} needs the number of classes, or their names: give task.labels")
    for name, value in {"pack": pack, "chat": chat, "labels": labels, "beta": beta}.items():
        if value is not None and objective not in _BELONGS[name]:
            raise TaskError(f"{name} does not belong to the objective {objective}: remove it")
    base = base_of(model, root, download, tokenizer)
    base.length(length)
    if chat is not None:
        base.check_chat(chat)
    if base.tokenizer.pad_token_id is None and classifies:
        raise TaskError(
            f"task.model: the tokenizer {base.tokenizer.name_or_path} has no padding token, and "
            f"{objective} pads: set its `pad_token`, and save it again"
        )
    if objective == "token-classification" and not base.tokenizer.is_fast:
        raise TaskError(
            f"token-classification: a {type(base.tokenizer).__name__} does not give the words of its tokens: "
            "take a tokenizer with a tokenizer.json"
        )
    targets = target_modules if isinstance(target_modules, str | None) else tuple(target_modules)
    packs = objective == "causal-lm" and pack is not False
    classes = count_of(labels) if labels is not None else None
    _check_model(base, objective, classes, packs, r is not None, targets)


def _check_bits(model: str | Mapping[str, Any], quantize: str, r: int | None) -> None:
    """Raise ``TaskError`` if the base cannot have so few bits."""
    if r is None:
        raise TaskError(
            f"quantize is {quantize}: a base of so few bits is not trained itself: give task.lora.r, or "
            "search over r"
        )
    if not isinstance(model, str):
        raise TaskError(f"quantize is {quantize}: a model that begins at random has no base: leave it out")
    if find_spec("bitsandbytes") is None:
        raise MissingExtra(
            f"quantize is {quantize}, which needs the package 'bitsandbytes', and it is not installed: "
            "`pip install bitsandbytes` on every machine, or leave quantize out"
        )


@functools.lru_cache(maxsize=256)
def _check_model(
    base: Base,
    objective: str,
    labels: int | None,
    packs: bool,
    adapts: bool,
    targets: str | tuple[str, ...] | None,
) -> None:
    """The same of the model's structure, which is built without values: once for configs that share it."""
    hollow = base.hollow(objective, labels)
    if packs and "position_ids" not in inspect.signature(hollow.forward).parameters:
        raise TaskError(
            f"pack: {type(hollow).__name__} takes no position_ids, so that packed texts would see one "
            "another: set task.pack: false"
        )
    if not adapts:
        return
    check_targets(hollow, targets)
    ends = sorted({name.rpartition(".")[2] for name in layers_of(hollow)})
    try:
        adapted(hollow, objective, 1, None, 0.0, targets)
    except (ValueError, re.error) as exc:
        without_parts = re.sub(r"\(\n.*\n\)", "", str(exc), flags=re.DOTALL)  # of a module that PEFT prints
        reason = shorten(without_parts, _SHOWN)
        raise TaskError(
            f"no adapter can be made for {type(hollow).__name__}: {reason}; its layers are {', '.join(ends)}"
        ) from exc


def _parts(columns: Any) -> tuple[list[list[str]], list[Any]]:
    """The columns of text, and the others."""
    values = list(columns.values()) if isinstance(columns, Mapping) else columns
    if isinstance(values, list) and values and isinstance(values[0], bytes):
        values = (values,)  # a single column comes alone
    elif isinstance(values, Tensor):
        values = (values,)
    try:
        texts = [[text.decode() for text in each] for each in values if _is_text(each)]
    except UnicodeDecodeError as exc:
        raise TaskError(f"a text is no UTF-8: {exc}; write the texts in UTF-8") from exc
    if not texts:
        raise TaskError(
            "the batches have no column of text: name it in data.text, such as `data: {columns: [text], "
            "text: [text]}`"
        )
    return texts, [each for each in values if not _is_text(each)]


def _is_text(column: Any) -> bool:
    return isinstance(column, list) and bool(column) and isinstance(column[0], bytes)
