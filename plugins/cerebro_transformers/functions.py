"""The functions of a task of transformers: the model, batches, loss and metrics. Their parameters are what a
recipe can search."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import Tensor, nn
from transformers import get_scheduler

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import Exported
from cerebro_transformers.base import Base, base_of, check_targets, layers_of
from cerebro_transformers.sequences import IGNORED, labelled, packed, single

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork


OBJECTIVES = {"causal-lm": "CAUSAL_LM", "sequence-classification": "SEQ_CLS"}
"""What can be learned, and PEFT's names of it."""


class Model(nn.Module):
    """Takes a batch as one argument."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: Mapping[str, Tensor]) -> Any:
        return self.inner(**batch)


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
    labels: int | None = None,
    dtype: str = "auto",
    gradient_checkpointing: bool = False,
    weight_decay: float = 0.0,
    schedule: str = "linear",
    warmup: float = 0.0,
) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    """``model_fn``: the model, AdamW, and the schedule of the learning rate."""
    inner = base_of(model, root, download, tokenizer).model(objective, labels, dtype)
    if r is not None:
        inner = adapted(inner, objective, r, alpha, dropout or 0.0, target_modules)
    if gradient_checkpointing:
        inner.gradient_checkpointing_enable({"use_reentrant": False})
    trained = [parameter for parameter in inner.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr)
    if schedule == "constant" and not warmup:
        return Model(inner), optimizer, None
    name = "constant_with_warmup" if schedule == "constant" else schedule
    return Model(inner), optimizer, get_scheduler(name, optimizer, round(warmup * steps), steps)


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
) -> tuple[dict[str, Tensor], Tensor]:
    """``input_fn``: what the model takes, and the labels."""
    base = base_of(model, root, download, tokenizer)
    texts, others = _parts(columns)
    length = base.length(length)
    if objective == "sequence-classification":
        of_batch = labelled(base.tokenizer, texts, others, length, truncate)
    elif len(texts) + len(others) > 1:
        raise TaskError(
            f"causal-lm learns from one column of text, and the batches have {len(texts) + len(others)} "
            "columns: choose one by data.columns"
        )
    else:
        tokens = base.tokens(texts[0]) if chat is None else base.conversations(texts[0], chat)
        of_batch = packed(tokens, length, base.pad) if pack else single(tokens, length, base.pad, truncate)
    return of_batch, of_batch["labels"]


def labels_in(labels: Tensor) -> Tensor:
    """How many labels a batch has: the loss is the mean over them."""
    return (labels != IGNORED).sum()


def loss(output: Any, labels: Tensor) -> Tensor:
    """The model's own: the mean over the labels; 0 if there are none."""
    value: Tensor = output.loss if labels_in(labels) else output.logits.sum() * 0
    return value


loss.items = labels_in  # type: ignore[attr-defined]


def accuracy(output: Any, labels: Tensor) -> Tensor:
    """The share of labels that the model finds most likely; of a text, that of its tokens."""
    logits: Tensor = output.logits
    if labels.dim() > 1:  # the next token's
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
    labels: int | None = None,
    length: int | None = None,
    pack: bool | None = None,
    chat: str | None = None,
) -> None:
    """Raise ``TaskError`` if these values cannot be used; of the base only config and tokenizer are read."""
    if r is None:
        of_adapter = {"alpha": alpha, "dropout": dropout, "target_modules": target_modules}
        if given := sorted(name for name, value in of_adapter.items() if value is not None):
            raise TaskError(
                f"{', '.join(given)}: of an adapter, which has no rank: give task.lora.r, or search over r"
            )
    classifies = objective == "sequence-classification"
    if classifies and labels is None:
        raise TaskError("sequence-classification needs the number of classes: give task.labels")
    foreign = {"pack": pack, "chat": chat} if classifies else {"labels": labels}
    for name, value in foreign.items():
        if value is not None:
            raise TaskError(f"{name} does not belong to the objective {objective}: remove it")
    base = base_of(model, root, download, tokenizer)
    base.length(length)
    if chat is not None:
        base.check_chat(chat)
    if base.tokenizer.pad_token_id is None and classifies:
        raise TaskError(
            f"task.model: the tokenizer {base.tokenizer.name_or_path} has no padding token, and "
            "sequence-classification pads: set its `pad_token`, and save it again"
        )
    targets = target_modules if isinstance(target_modules, str | None) else tuple(target_modules)
    _check_model(base, objective, labels, pack is not False and not classifies, r is not None, targets)


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
    except ValueError as exc:
        raise TaskError(
            f"no adapter can be made for {type(hollow).__name__}: {exc}; its layers are {', '.join(ends)}"
        ) from exc


def exported(model: Any, base: Base, not_carried: Sequence[str]) -> Exported:
    """The adapter as PEFT saves it, or the whole model as transformers do."""
    with TemporaryDirectory() as folder:
        if isinstance(model, PeftModel):
            weights = get_peft_model_state_dict(model, save_embedding_layers=False)
            adapter = model.peft_config["default"]
            adapter.base_model_name_or_path = str(base.source)
            adapter.save_pretrained(folder)
            file, load = "adapter_model.safetensors", _LOAD_ADAPTER
        else:
            own = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}  # ties once
            weights = {name: value for name, value in model.state_dict().items() if name in own}
            model.config.use_cache = base.config.use_cache
            model.config.save_pretrained(folder)
            base.tokenizer.save_pretrained(folder)
            file, load = "model.safetensors", _LOAD
        further = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    kind = type(model.get_base_model() if isinstance(model, PeftModel) else model).__name__
    labels = f", num_labels={model.config.num_labels}" if kind.endswith("SequenceClassification") else ""
    code = load.format(kind=kind, base=base.source, labels=labels)
    of_adapter = {"library_name": "peft", "base_model": str(base.source)}
    card = of_adapter if isinstance(model, PeftModel) else {"library_name": "transformers"}
    return Exported(weights, code, not_carried=not_carried, file=file, further=further, card=card)


_LOAD_ADAPTER = """\
from peft import PeftModel
from transformers import {kind}

base = {kind}.from_pretrained({base!r}{labels})
model = PeftModel.from_pretrained(base, ".")  # the folder of MODEL
model = model.merge_and_unload()  # the base with the adapter in it, if you want one model
"""
_LOAD = """\
from transformers import {kind}

model = {kind}.from_pretrained(".")  # the folder of MODEL
"""


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
