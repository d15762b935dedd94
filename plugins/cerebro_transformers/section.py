"""The recipe's ``task`` section for transformers; imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue

from cerebro_elastic.extending.recipes import Section, TaskSection, Url


def _classes(value: object) -> object:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        if len(set(value)) == len(value) > 1:
            return value
    elif isinstance(value, int) and value > 1 and not isinstance(value, bool):
        return value
    raise ValueError("the number of classes, from 2 on, or a list of their different names")


Classes = Annotated[int | list[str], BeforeValidator(_classes)]
Share = Annotated[float, Field(ge=0, lt=1)]


class LoraSection(Section):
    """A low-rank adapter. Each key may be searched instead."""

    r: Annotated[int, Field(ge=1)] | None = None
    """The adapter's rank."""
    alpha: Annotated[float, Field(gt=0)] | None = None
    """Its output is scaled by `alpha / r`; by default by 1."""
    dropout: Share | None = None
    """Dropout before the adapter; by default none."""
    target_modules: str | list[str] | None = None
    """The ends of the names of the layers that get one, `all-linear`, or a regular expression for whole
    names; by default PEFT's choice for the model."""


class TransformersSection(TaskSection):
    """A model of transformers."""

    NEEDS: ClassVar[tuple[str, ...]] = ("transformers", "peft")
    MAY_USE: ClassVar[tuple[str, ...]] = ("accelerate", "safetensors", "tokenizers")

    kind: Literal["transformers"] = "transformers"
    """A model of Hugging Face transformers; see [transformers](../how-to/transformers.md). Each key below may
    be searched instead, by its name, but for `clip`."""
    model: Url | Mapping[str, JsonValue] | None = None
    """The folder that has the base model and its tokenizer, as `save_pretrained` writes them;
    `package:folder`, one of an installed Python package; with `download`, a commit of the Hugging Face hub,
    `org/name@1a2b...`; or the config of a model that begins at random, `{model_type: gpt2, n_layer: 4}`."""
    tokenizer: Url | None = None
    """The folder of a tokenizer, if it is not the model's. A model that begins at random has one of bytes
    (384 tokens) by default."""
    objective: Literal["causal-lm", "dpo", "sequence-classification", "token-classification"] | None = None
    """The objective: to predict the next token of texts (the default), the text of two that people prefer
    (`dpo`, needs `lora`), or the class of a text or of each of its words."""
    download: bool | None = None
    """Whether a model may come from the Hugging Face hub. Nothing is downloaded without it."""
    lora: LoraSection | None = None
    """Train an adapter, and leave the base as it is. Without it, and without an `r` that is searched, all of
    the model is trained."""
    length: Annotated[int, Field(ge=2)] | None = None
    """The most tokens of a sequence; by default the model's limit, up to 1024."""
    pack: bool | None = None
    """For `causal-lm`: put the texts of a batch one behind another into sequences of `length` tokens, without
    letting one see another (the default); or give each its own sequence."""
    truncate: bool | None = None
    """Cut off texts longer than `length`, where each has its own sequence. By default that is refused."""
    chat: Literal["all", "answers"] | None = None
    """For `causal-lm` and `dpo`: each text is a conversation, a list of messages in JSON, and the tokenizer's
    chat template makes a text of it. Learned are `all` of its tokens, or the `answers` of the assistant."""
    labels: Classes | None = None
    """For classes: their number, or their names."""
    beta: Annotated[float, Field(gt=0)] | None = None
    """For `dpo`: how strongly the model is held to its base. By default 0.1."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    """The type of the base's numbers; `auto` (the default): as they are stored. Adapters are float32."""
    quantize: Literal["4bit", "8bit"] | None = None
    """With `lora`: the base's matrices have so few bits (needs the package `bitsandbytes`). `4bit` is NF4."""
    gradient_checkpointing: bool | None = None
    """Compute a layer's output again in the backward pass: takes less memory, and more time."""
    lr: Annotated[float, Field(ge=0)] | None = None
    """The learning rate of AdamW."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """AdamW's; vectors (biases, norms) have none. By default 0."""
    schedule: Literal["linear", "cosine", "constant"] | None = None
    """How the learning rate changes, step by step: to 0 (`linear`, the default, or `cosine`), or not at
    all."""
    warmup: Share | None = None
    """The share of all steps in which it rises from 0. By default 0."""
    clip: Annotated[float, Field(gt=0)] | None = 1.0
    """The norm of the gradients is clipped to this value; `null`: it is not."""

    @property
    def given(self) -> dict[str, Any]:
        """The recipe's values, by the names under which they could be searched."""
        of_lora = self.lora.model_dump(exclude_none=True) if self.lora else {}
        own = self.model_dump(exclude={"kind", "lora", "clip"}, exclude_none=True)
        return {**own, **of_lora}
