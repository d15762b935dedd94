"""A trained model as the files that PEFT or transformers load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peft import PeftModel, get_peft_model_state_dict

from cerebro_elastic.extending.tasks import Exported
from cerebro_transformers.base import CLASSIFIES, Base, Source


def exported(model: Any, base: Base, objective: str, not_carried: Sequence[str]) -> Exported:
    """The adapter as PEFT saves it, or the whole model as transformers do."""
    adapts = isinstance(model, PeftModel)
    place, commit = base.source.place if isinstance(base.source, Source) else ("", None)
    with TemporaryDirectory() as folder:
        if adapts:
            weights = get_peft_model_state_dict(model, save_embedding_layers=False)
            adapter = model.peft_config["default"]
            adapter.base_model_name_or_path, adapter.revision = place, commit
            for name, value in vars(adapter).items():
                if isinstance(value, set):  # in the order of this process's hashes
                    setattr(adapter, name, sorted(value))
            adapter.save_pretrained(folder)
        else:
            own = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}  # ties once
            weights = {name: value for name, value in model.state_dict().items() if name in own}
            model.config.use_cache = getattr(base.config, "use_cache", True)
            model.config.save_pretrained(folder)
            base.tokenizer.save_pretrained(folder)
        further = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    kind = type(model.get_base_model() if adapts else model).__name__
    arguments = {"revision": commit} if commit is not None else {}
    if objective in CLASSIFIES:
        arguments["num_labels"] = model.config.num_labels
    given = "".join(f", {name}={value!r}" for name, value in arguments.items())
    card = {
        "library_name": "peft" if adapts else "transformers",
        "pipeline_tag": objective.replace("sequence", "text")
        if objective in CLASSIFIES
        else "text-generation",
    }
    if commit is not None:
        card["base_model"] = place
    return Exported(
        weights,
        (_LOAD_ADAPTER if adapts else _LOAD).format(kind=kind, base=place, given=given),
        not_carried=not_carried,
        file="adapter_model.safetensors" if adapts else "model.safetensors",
        further=further,
        card=card,
    )


_LOAD_ADAPTER = """\
from peft import PeftModel
from transformers import {kind}

base = {kind}.from_pretrained({base!r}{given})
model = PeftModel.from_pretrained(base, ".")  # the folder of MODEL
"""
_LOAD = """\
from transformers import {kind}

model = {kind}.from_pretrained(".")  # the folder of MODEL
"""
