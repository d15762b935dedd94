"""The task ``transformers`` keeps the contract, and trains as transformers' own Trainer does."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    Trainer,
    TrainingArguments,
)

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.ragged import Ragged, offsets_of
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import MissingExtra, RecipeError, TaskError
from cerebro_elastic.extending.tasks import Strategy, select_arguments
from cerebro_elastic.hop.checkpoint import bases
from cerebro_elastic.hop.checkpoint.tree import flatten
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.system.source_code import digests_in
from cerebro_elastic.testing.task_contract import Epoch, TaskContract, digest, hop
from cerebro_elastic.training.task import Task, TaskState, UnitJob, UnitResult
from cerebro_lightning import LightningTask
from cerebro_lightning.export import adapter_of
from cerebro_lightning.section import LightningSection
from cerebro_transformers import functions
from cerebro_transformers.section import TransformersSection
from cerebro_transformers.task import TransformersTask
from support.tiny_bases import LENGTH, tokenizer_of_bytes, write_base

pytest.importorskip("sklearn.datasets")  # here, for it sets environment variables when first imported
pytestmark = pytest.mark.usefixtures("imports_as_found")


@functools.cache
def base(kind: str) -> Path:
    folder = Path(_FOLDER.name) / kind
    return write_base(folder, kind)


_FOLDER = tempfile.TemporaryDirectory()


def texts(index: int, rows: int) -> list[bytes]:
    rng = np.random.default_rng(index)
    return [bytes(rng.integers(97, 105, rng.integers(1, 30)).astype(np.uint8)) for _ in range(rows)]


def column(values: Sequence[bytes]) -> Ragged:
    joined = np.frombuffer(b"".join(values), np.uint8)
    return Ragged(joined, offsets_of(np.array([len(value) for value in values])), "bytes")


ELSEWHERE = """
import sys; sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads({threads})
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("these_tests", {file!r})
tests = module_from_spec(spec)
sys.modules["these_tests"] = tests
spec.loader.exec_module(tests)
print(*(tests.digest_of(objective, Path({root!r})) for objective in reversed(tests.OBJECTIVES[:2])))
"""


class Contract(TaskContract):
    """What the tests of both objectives share."""

    kind = "gpt2"
    section: Mapping[str, Any] = {}
    hparams = {"lr": 0.01, "r": 2, "dropout": 0.1}  # noqa: RUF012
    seed = 3

    def make(self) -> Task:
        folder = base(self.kind)
        return TransformersTask(TransformersSection(model=str(folder), **self.section), folder)

    def partition(self, index: int, rows: int) -> Partition:
        return Partition(index, rows, {"text": column(texts(index, rows))})

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return dict(state["model"])

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        """As somebody would write it with transformers and peft."""
        torch.manual_seed(self.seed)
        values = {**TransformersSection(**self.section).given, **self.hparams}
        steps = sum(len(epoch.batches) for epoch in epochs)
        model = self.model(values)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=values["lr"], weight_decay=0.0)
        decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (steps - step) / steps)
        for epoch in epochs:
            for batch in epoch.batches:
                given, _ = functions.batch(batch, str(base(self.kind)), "", **self.of_batch)
                optimizer.zero_grad()
                model(**given).loss.backward()
                torch.nn.utils.clip_grad_norm_(trained, 1.0)
                optimizer.step()
                decay.step()
        return {f"inner.{name}": value for name, value in model.state_dict().items()}

    of_batch: Mapping[str, Any] = {}

    def model(self, values: Mapping[str, Any]) -> Any:
        model = AutoModelForCausalLM.from_pretrained(base(self.kind), use_cache=False)
        model.train()
        lora = LoraConfig(
            r=values["r"],
            lora_alpha=values["r"],
            lora_dropout=0.1,
            task_type="CAUSAL_LM",
            fan_in_fan_out=True,
        )
        return get_peft_model(model, lora)


class TestCausalLm(Contract):
    measures_means = False
    variants = {  # noqa: RUF012
        "a float of the optimizer": {"lr": 0.0},
        "a float of the architecture": {"alpha": 8.0},
        "a float in a layer": {"dropout": 0.5},
        "an int": {"r": 3},
        "a text": {"schedule": "constant"},
        "a bool": {"pack": False},
        "a list": {"target_modules": ["c_fc"]},
        "batch_size": {"batch_size": 2},
        "no adapter": {"r": None, "dropout": 0.0},
    }

    def test_texts_in_one_sequence_do_not_see_one_another(self) -> None:
        for kind in ("gpt2", "llama"):
            model, *_ = functions.make(str(base(kind)), "", 0.1, 1)
            model.eval()
            of_batch = [b"abc", b"hgfedc", b"ab" * 20]
            alone = [functions.batch([text], str(base(kind)), "")[0] for text in of_batch[:2]]
            together, _ = functions.batch(of_batch, str(base(kind)), "")
            assert together["input_ids"].shape == (2, LENGTH)
            logits = model(together).logits
            starts = (0, 4)
            for start, one, text in zip(starts, alone, of_batch, strict=False):
                expected = model(one).logits[0, : len(text) + 1]
                torch.testing.assert_close(logits[0, start : start + len(text) + 1], expected)

    def test_the_base_stays_and_the_adapter_hops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bases, "_LEAST", 0)
        result = self.task().train(self.job(0, None))
        stored = {name for name in flatten(result.state)[1] if name.startswith("model/")}
        hops = stored - result.before.keys()
        assert hops
        assert all("lora_" in name for name in hops)


class Of(Contract):
    """Units of an objective, with a model that has no dropout."""

    kind = "llama"

    def __init__(self, objective: str) -> None:
        self.objective = objective
        classes = {"sequence-classification": 3, "token-classification": ["even", "odd"]}
        labels = {"labels": classes[objective]} if objective in classes else {}
        self.section = {"objective": objective, **labels}
        self.hparams = {"lr": 0.01, "r": 2, "target_modules": ["q_proj", "v_proj", "up_proj"]}

    def partition(self, index: int, rows: int) -> Partition:
        whole = texts(index, rows)
        columns: dict[str, Any] = {"text": column(whole)}
        words = [b" ".join((text[:3], text[3:5], text[5:9])).strip() for text in whole]
        match self.objective:
            case "dpo":
                columns |= {"chosen": column([text[:9] for text in texts(index + 9, rows)])}
                columns |= {"text": column(words), "rejected": column(words[::-1])}
            case "sequence-classification":
                columns["label"] = np.array([len(text) % 3 for text in whole])
            case "token-classification":
                tags = [[b"odd" if len(each) % 2 else b"even" for each in text.split()] for text in words]
                columns = {"text": column(words), "tags": column([b" ".join(each) for each in tags])}
        return Partition(index, rows, columns)

    def of_folder(self, root: Path) -> TransformersTask:
        """With the base in the folder ``model``."""
        return TransformersTask(TransformersSection(model="model", **self.section), root)

    def units(self, root: Path, count: int) -> list[UnitResult]:
        """Units that hop."""
        task = self.of_folder(root)
        results: list[UnitResult] = []
        for number in range(count):
            state = hop(results[-1].state) if results else None
            results.append(task.train(self.job(number, state, epochs=1)))
        return results


OBJECTIVES = ("causal-lm", "dpo", "sequence-classification", "token-classification")


def digest_of(objective: str, folder: Path) -> str:
    """The state after a unit, with a base in ``folder``, and the layers that the exported adapter names."""
    of = Of(objective)
    root = folder / objective
    shutil.copytree(base(of.kind), root / "model")
    state = of.units(root, 1)[0].state
    further = of.of_folder(root).export(of.hparams, state, of.seed, 1, 9).further
    return f"{digest(state)}:{'+'.join(json.loads(further['adapter_config.json'])['target_modules'])}"


def test_a_state_is_the_same_in_another_process_that_has_the_base_elsewhere(tmp_path: Path) -> None:
    """Its objects have other hashes, and other objectives were trained in it before."""
    digests = [digest_of(objective, tmp_path / "here") for objective in OBJECTIVES[:2]]
    elsewhere = str(tmp_path / "elsewhere")
    script = ELSEWHERE.format(
        tests=str(Path(__file__).parents[2]), threads=torch.get_num_threads(), file=__file__, root=elsewhere
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    printed = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert printed.split()[-2:] == digests[::-1]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_units_equal_a_loop_by_hand_and_a_trainer_of_transformers(objective: str, tmp_path: Path) -> None:
    """A Trainer sums the loss of tokens and divides, and the loss of pairs is the paper's: last bits
    differ."""
    of = Of(objective)
    (tmp_path / "model").symlink_to(base(of.kind))
    results = of.units(tmp_path, 3)
    values = {
        "model": str(base(of.kind)),
        "root": "",
        **TransformersSection(**of.section).given,
        **of.hparams,
    }
    given = [
        functions.batch(batch, **select_arguments(functions.batch, values))
        for batch in of.epochs()[0].batches
    ]
    arguments = select_arguments(functions.make, {**values, "steps": len(given)})
    torch.manual_seed(of.seed)
    model, optimizer, schedule = functions.make(**arguments)
    gradients: dict[str, torch.Tensor] = {}
    for inputs, labels in given:
        optimizer.zero_grad()
        functions.loss(model(inputs), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        gradients = gradients or {
            n: p.grad.clone() for n, p in model.inner.named_parameters() if p.requires_grad
        }
        optimizer.step()
        schedule.step()
    for name, value in model.state_dict().items():
        assert torch.equal(results[-1].state["model"][name], value), name

    torch.manual_seed(of.seed)
    model, *_ = functions.make(**arguments)
    with patch.dict(os.environ):
        inputs = [inputs for inputs, _ in given]
        kind = _Preferring if objective == "dpo" else _InOrder
        trainer = kind(tmp_path / "trainer", model.inner, inputs, learning_rate=0.01, seed=of.seed)
        trainer.train()
    assert gradients
    for name, gradient in gradients.items():
        torch.testing.assert_close(trainer.first_gradients[name], gradient, rtol=1e-4, atol=1e-6)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    rows = [len(batch[0] if isinstance(batch, tuple) else batch) for batch in of.epochs()[0].batches]
    mean = sum(loss * count for loss, count in zip(losses, rows, strict=True)) / sum(rows)
    assert results[-1].metrics["train_loss"] == pytest.approx(mean, rel=1e-4)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(results[-1].state["model"][name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "objective", "how"),
    [
        ("llama", "dpo", "adapter"),
        ("bert", "token-classification", "adapter"),
        ("bert", "sequence-classification", "merged"),
        ("llama", "causal-lm", "whole"),
    ],
)
def test_an_export_is_loaded_by_peft_or_transformers(
    kind: str, objective: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # PEFT's bar, though not shown, starts a thread
    of = Of(objective)
    (tmp_path / "model").symlink_to(base(kind))
    hparams = {"lr": 0.01, **({} if how == "whole" else {"r": 2})}
    task = TransformersTask(TransformersSection(model="model", **of.section), tmp_path)
    state = task.train(of.job(0, None, hparams=hparams)).state
    exported = (task.export_merged if how == "merged" else task.export)(hparams, state, of.seed, 1, 1)
    folder = tmp_path / "exported"
    folder.mkdir()
    save_file({name: value.contiguous() for name, value in exported.weights.items()}, folder / exported.file)
    for name, content in exported.further.items():
        (folder / name).write_bytes(content)
    auto = {
        "sequence-classification": AutoModelForSequenceClassification,
        "token-classification": AutoModelForTokenClassification,
    }.get(objective, AutoModelForCausalLM)
    if how == "adapter":
        assert {path.name for path in folder.iterdir()} == {
            "adapter_model.safetensors",
            "adapter_config.json",
        }
        count = {"num_labels": 2} if objective == "token-classification" else {}
        model = PeftModel.from_pretrained(auto.from_pretrained(base(kind), **count), str(folder))
    else:
        model = auto.from_pretrained(folder)
        assert model.config.use_cache
        transformers.AutoTokenizer.from_pretrained(folder)
    given = {"model": "model", "root": str(tmp_path), "steps": 1, **hparams, **of.section}
    expected, *_ = functions.make(**select_arguments(functions.make, given))
    expected.load_state_dict(state["model"])
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        logits, own = model.eval()(tokens).logits, expected.eval().inner(tokens).logits
    torch.testing.assert_close(
        logits, own, **({"rtol": 1e-4, "atol": 1e-5} if how == "merged" else {"rtol": 0, "atol": 0})
    )


class _InOrder(Trainer):
    """Trains batches as they are."""

    def __init__(self, folder: Path, model: Any, batches: Sequence[Any], **settings: Any) -> None:
        arguments = TrainingArguments(
            str(folder),
            num_train_epochs=1,
            per_device_train_batch_size=1,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            optim="adamw_torch",
            **settings,
        )
        super().__init__(model, arguments, data_collator=lambda rows: rows[0], train_dataset=list(batches))
        self.first_gradients: dict[str, torch.Tensor] = {}
        self.add_callback(_Gradients(self.first_gradients))

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


class _Preferring(_InOrder):
    """By DPO as its paper has it, with PEFT's own way to switch an adapter off."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **_given: Any) -> torch.Tensor:
        with torch.no_grad(), model.disable_adapter():
            reference = self.log_probabilities(model, inputs)
        ratio = self.log_probabilities(model, inputs) - reference
        rejected, chosen = ratio.chunk(2)
        return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()

    @staticmethod
    def log_probabilities(model: Any, inputs: Any) -> torch.Tensor:
        labels = inputs["labels"][:, 1:]
        every = model(inputs["input_ids"]).logits[:, :-1].log_softmax(-1)
        of_labels = every.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        return (of_labels * (labels != -100)).sum(-1)


class _Gradients(transformers.TrainerCallback):
    """Keeps those of the first step."""

    def __init__(self, kept: dict[str, torch.Tensor]) -> None:
        self.kept = kept

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        del args, control
        if state.global_step == 0:
            for name, parameter in given["model"].named_parameters():
                if parameter.grad is not None:
                    self.kept[name] = parameter.grad.clone()


TEXT = {"model": "gpt2", "lr": 0.1}
NEW = {"model_type": "gpt2", "vocab_size": 384, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 16}


@pytest.mark.parametrize(
    ("section", "hparams", "words"),
    [
        ({"model": "openai/gpt2"}, {"lr": 0.1}, r"'openai/gpt2'.*no folder.*download: true"),
        (TEXT, {"r": 2, "target_modules": ["c_attn", "q_proj"]}, r"no layer.*'q_proj'.*c_attn, c_fc, c_proj"),
        (TEXT, {"length": LENGTH + 1}, rf"length is {LENGTH + 1}.*takes {LENGTH} tokens"),
        (TEXT, {"chat": "all"}, r"has no chat template: set its"),
        (TEXT, {"objective": "dpo"}, r"dpo compares the model with its base.*task.lora.r"),
        (TEXT, {"quantize": "4bit"}, r"is not trained itself: give task.lora.r"),
        (
            {"model": {"model_type": "bert", "vocab_size": 384}, "lr": 0.1},
            {},
            r"each token of a BertLMHeadModel sees later ones",
        ),
        ({"model": "other_tokenizer", "lr": 0.1}, {}, r"tokens up to 259.*258 rows"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(
    section: dict[str, Any], hparams: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "gpt2").symlink_to(base("gpt2"))
    tokenizer = tokenizer_of_bytes()
    tokenizer.add_tokens(["<a>", "<b>"])
    (tmp_path / "other_tokenizer").mkdir()
    for file in base("gpt2").iterdir():
        (tmp_path / "other_tokenizer" / file.name).write_bytes(file.read_bytes())
    tokenizer.save_pretrained(tmp_path / "other_tokenizer")
    task = TransformersTask(TransformersSection(**section), tmp_path)
    with pytest.raises(TaskError, match=words):
        task.check(hparams)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ({"lora": {"rank": 2}}, r"unknown key 'task.lora.rank'; choices: alpha, dropout, r, target_modules"),
        ({"quantize": "2bit"}, r"task.quantize is '2bit': choices: '4bit' or '8bit'"),
    ],
)
def test_a_key_that_the_section_does_not_take_is_refused(key: dict[str, Any], words: str) -> None:
    recipe = {"task": {"kind": "transformers", **key}, "data": {"source": "a:b"}, "search": {"space": {}}}
    with pytest.raises(RecipeError, match=words):
        load_recipe(recipe)


CLASSES = {"objective": "sequence-classification"}
TAGS = {"objective": "token-classification", "labels": ["O", "P"]}


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        ([b"a" * 40], {"pack": False}, r"41 tokens, more than length 32: set task.truncate"),
        ([b"a"], CLASSES, r"one of classes"),
        (([b"a"], [b"b"], torch.zeros(1)), {"objective": "dpo"}, r"\(prompt, chosen, rejected\) or"),
        (([b"a b"], [b"O"]), TAGS, r"a text of 2 words has 1 classes.*begins 'a b'"),
    ],
)
def test_a_batch_that_does_not_suit_is_refused(columns: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        functions.batch(columns, str(base("gpt2")), "", **settings)


@pytest.mark.parametrize(
    ("learned", "template", "labels"),
    [
        ("answers", "{% generation %}{{ m.content }}{% endgeneration %}", "yes"),
        ("all", "{{ m.content }}", "hyes"),
    ],
)
def test_a_conversation_is_learned_by_its_template(
    learned: str, template: str, labels: str, tmp_path: Path
) -> None:
    tokenizer = tokenizer_of_bytes(
        chat_template="{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
        + template
        + "{% endif %}{% endfor %}"
    )
    shutil.copytree(base("gpt2"), tmp_path / "chat")
    tokenizer.save_pretrained(tmp_path / "chat")
    text = b'[{"role": "user", "content": "oh"}, {"role": "assistant", "content": "yes"}]'
    of_chat = {"model": str(tmp_path / "chat"), "root": "", "chat": learned}
    functions.check(**of_chat)
    given, found = functions.batch([text], **of_chat)
    assert tokenizer.decode(given["input_ids"][0]) == "ohyes"
    assert tokenizer.decode(found[found != -100]) == labels
    with pytest.raises(TaskError, match=r"'\[1\]' is no conversation"):
        functions.batch([b"[1]"], **of_chat)
    if learned == "all":
        with pytest.raises(TaskError, match="marks the assistant's answers"):
            functions.check(**{**of_chat, "chat": "answers"})


def test_the_files_of_a_base_are_those_that_a_run_records() -> None:
    task = TransformersTask(TransformersSection(model="gpt2"), base("gpt2").parent)
    names = digests_in(task.files({"lr": 0.1}), base("gpt2").parent).keys()
    assert names >= {"gpt2/", "gpt2/config.json", "gpt2/model.safetensors", "gpt2/tokenizer.json"}


def test_a_base_of_the_hub_is_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in this machine's cache, without a network."""
    commit = "0123456789" * 4
    home = tmp_path / "models--org--tiny"
    shutil.copytree(base("gpt2"), home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def task(model: str) -> TransformersTask:
        return TransformersTask(TransformersSection(model=model, lr=0.1, download=True), tmp_path)

    for name, words in {
        "org/tiny": rf"name the commit, org/tiny@{commit}",
        f"org/tiny@{commit[::-1]}": "cannot be taken from the .* hub: .*`hf download org/tiny --revision 9",
    }.items():
        with pytest.raises(TaskError, match=words):
            task(name).check({})
    named = f"org/tiny@{commit}"
    task(named).check({})
    assert not task(named).files({})
    model, *_ = functions.make(named, "", 0.1, 1, download=True, r=2)
    exported = task(named).export({"r": 2}, {"model": model.state_dict(), "scheduler": None}, 1, 1, 1)
    assert json.loads(exported.further["adapter_config.json"])["revision"] == commit
    assert f"from_pretrained('org/tiny', revision='{commit}')" in exported.load


def test_a_model_may_begin_at_random_with_a_tokenizer_of_bytes() -> None:
    task = TransformersTask(TransformersSection(model=NEW), base("gpt2"))
    task.check({"lr": 0.1})
    (given, _), model = functions.batch([b"ab"], NEW, ""), functions.make(NEW, "", 0.1, 1)[0]
    assert given["input_ids"].tolist() == [[ord("a") + 3, ord("b") + 3, 1]]
    assert torch.isfinite(model(given).loss)
    assert not task.files({"lr": 0.1})


@pytest.mark.parametrize(
    ("parallelism", "key", "words"),
    [
        ("pipeline", {"quantize": "8bit"}, "single or ddp"),
        ("pipeline", {}, "fsdp or deepspeed"),
        ("deepspeed", {"dtype": "bfloat16"}, "parameters in float32"),
    ],
)
def test_what_cannot_be_divided_among_ranks_is_refused(
    parallelism: str, key: dict[str, Any], words: str
) -> None:
    task = TransformersTask(TransformersSection(model="gpt2", **key), base("gpt2").parent)
    options = {"stage": 2} if parallelism == "deepspeed" else {}
    assert words in str(task.refusal({"lr": 0.1, "r": 2}, Strategy(parallelism, 2, options=options)))


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_a_base_of_few_bits_is_refused_without_the_library_that_makes_it() -> None:
    with pytest.raises(MissingExtra, match="needs the package 'bitsandbytes'"):
        functions.check(str(base("gpt2")), "", r=2, quantize="4bit")


@pytest.mark.parametrize("quantize", ["4bit", "8bit"])
def test_a_base_of_few_bits_is_in_no_state(quantize: str) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    made = [functions.make(str(base("llama")), "", 0.1, 1, r=2, quantize=quantize)[0] for _ in range(2)]
    state = made[0].state_dict()
    assert not [name for name in state if "base_layer.weight" in name]
    made[1].load_state_dict(state)
    given, _ = functions.batch([b"abc"], str(base("llama")), "")
    assert torch.equal(made[0](given).logits, made[1](given).logits)
    assert torch.isfinite(made[0].eval()(given).loss)


LIGHTNING = """import lightning.pytorch as pl
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


class Module(pl.LightningModule):
    def __init__(self, base, lr=0.1):
        super().__init__()
        lora = LoraConfig(r=2, task_type="CAUSAL_LM", target_modules={"q_proj", "v_proj"})
        self.net = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
        self.lr = lr

    def training_step(self, batch, _):
        return self.net(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=self.lr)
"""


def test_a_lightning_module_with_an_adapter_is_exported_as_one_for_peft_too(tmp_path: Path) -> None:
    (tmp_path / "peft_net.py").write_text(LIGHTNING)
    task = LightningTask(
        LightningSection(module="peft_net:Module", args={"base": str(base("llama"))}), tmp_path
    )
    rows = Partition(0, 4, {"x": np.arange(32).reshape(4, 8)})
    job = UnitJob(
        Unit("c0", 0, 0), {}, 1, epochs=1, visited=(), rows=(4,), partition=rows, validation=(),
        loader=LoaderSettings(2), state=None, device="cpu",
    )  # fmt: skip
    state = hop(task.train(job).state)
    given = task.export({}, state, 1, 1, 2)
    assert set(given.further) == {"adapter_config.json", "adapter_model.safetensors"}
    for name, content in given.further.items():
        (tmp_path / name).write_bytes(content)
    assert json.loads(given.further["adapter_config.json"])["target_modules"] == ["q_proj", "v_proj"]
    plain = AutoModelForCausalLM.from_pretrained(base("llama"))
    tokens = torch.arange(10)[None]
    before = plain(tokens).logits
    loaded, own = PeftModel.from_pretrained(plain, str(tmp_path)), task.load_module({}, state, 1)
    assert torch.equal(loaded.eval()(tokens).logits, own.eval().net(tokens).logits)
    assert not torch.equal(loaded(tokens).logits, before)
    own.net.add_adapter("adapter_of_another_name", LoraConfig(target_modules=["q_proj"]))
    assert set(adapter_of(own)) == set(given.further), "others are in folders"
