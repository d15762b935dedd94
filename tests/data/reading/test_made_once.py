"""Made batches and opened rows: equal to those made anew, made once, and not trusted when damaged, or when
they differ at a second time."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from cerebro_elastic.data.manifest import ROW
from cerebro_elastic.data.ragged import Ragged, offsets_of
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import Batches, DataUse, Made, MadeBatches
from cerebro_elastic.data.reading.made_twice import BATCHES, differing
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.shared_records import MISSING, Records
from cerebro_elastic.data.reading.worker_processes import end_idle
from cerebro_elastic.errors import RecipeError, RunError, TaskError
from cerebro_elastic.system import process_settings
from cerebro_elastic.system.subprocess_call import call_in_fork

ROWS, SIZE = 22, 4
COUNT = -(-ROWS // SIZE)
CALLS = "CEREBRO_TEST_CALLS"
SCALE = "CEREBRO_TEST_SCALE"


class Pair(NamedTuple):
    x: torch.Tensor
    y: int


def called(name: str) -> None:
    """Count a call, in any process; its result costs enough to be worth keeping."""
    hashlib.pbkdf2_hmac("sha1", b"", b"", 12_000)
    with open(os.environ[CALLS], "a") as file:
        file.write(f"{name}\n")


def double(batch: Any) -> Any:
    called("double")
    return 2 * batch


def noisy(batch: Any) -> Any:
    called("noisy")
    return batch + torch.rand(len(batch), 1) + np.random.rand() + random.random()


def opened(value: bytes) -> Any:
    called("opened")
    return np.frombuffer(value, np.uint8).astype(np.float32)


def opened_by_phase(value: bytes, training: bool) -> Any:
    return opened(value) + training


def opened_by_chance(value: bytes) -> Any:
    return opened(value) + np.random.rand()


def shifted(value: Any) -> Any:
    called("shifted")
    return value + np.random.rand()


OWN = np.random.default_rng()


def of_own_generator(batch: Any) -> Any:
    return batch + OWN.normal()


def opened_by_own_generator(value: bytes) -> Any:
    return opened(value) + OWN.normal()


SEEN = {"batches": 0}


def counting(batch: Any) -> Any:
    SEEN["batches"] += 1
    return batch + SEEN["batches"]


def opened_with_count(value: bytes) -> Any:
    SEEN["batches"] += 1
    return opened(value) + SEEN["batches"]


def timed(batch: Any) -> Any:
    return batch * 0 + time.perf_counter() % 1  # small, so that float32 shows microseconds


def scaled(batch: Any, scale: float, epoch: int, training: bool) -> Any:
    called("scaled")
    return batch * scale + epoch + training


def in_its_settings(batch: Any) -> Any:
    called("in_its_settings")
    scale = float(os.environ.get(SCALE, 1)) * (3 if np.geterr()["over"] == "raise" else 1)
    return batch.to(torch.get_default_dtype()) * scale


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> Any:
        called("row")
        return torch.tensor([float(row)]), row


class Drawing(Squares):
    def __getitem__(self, row: int) -> Any:
        return torch.rand(1), row


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """How often a function was called since the last question, in all processes."""
    file = tmp_path / "calls"
    monkeypatch.setenv(CALLS, str(file))

    def since(name: str) -> int:
        count = file.read_text().split().count(name) if file.exists() else 0
        file.write_text("")
        return count

    yield since
    end_idle()


@pytest.fixture
def made(tmp_path: Path) -> MadeBatches:
    return MadeBatches(tmp_path / "made", 1 << 30, "a" * 64)


NUMBERS = Partition(0, ROWS, {"x": np.arange(ROWS * 6, dtype="f4").reshape(ROWS, 6)}, name="numbers")
BYTES = Partition(
    0,
    ROWS,
    {"x": Ragged(np.arange(ROWS * 3, dtype="u1"), offsets_of(np.full(ROWS, 3)), "bytes")},
    name="bytes",
)
NUMBERED = Partition(0, ROWS, {ROW: np.arange(ROWS)}, name="numbered")
ORDER = np.random.default_rng(0).permutation(ROWS)


def taken(
    partition: Partition, loader: LoaderSettings, made: MadeBatches | None, epoch: int | None = 0
) -> tuple[list[Any], DataUse, Any]:
    """The batches of a pass, the use of them, and the next number of torch's generator."""
    count = DataUse()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(epoch or 0)
    loader = loader.of_phase(training=epoch is not None, epoch=epoch or 0)
    got = list(batches(partition, ORDER, loader, seed=3 + (epoch or 0), epoch=epoch, made=made, use=count))
    return got, count, torch.rand(1)


def assert_equal(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def values() -> dict[str, Any]:
    big = torch.arange(20_000.0).reshape(200, 100)
    return {
        "tensor": torch.arange(6.0).reshape(2, 3),
        "no values": torch.empty(0, 3),
        "one number": torch.tensor(3),
        "large": big,
        "part": big[3:5],
        "transposed": big[:4].t(),
        "with gaps": big[:, ::2],
        "expanded": torch.ones(2, 1).expand(2, 5),
        "channels last": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "bfloat16": torch.rand(3).bfloat16(),
        "complex": torch.rand(3).to(torch.complex64).conj(),
        "a parameter": torch.nn.Parameter(torch.ones(2)),
        "arrays": {"a": np.arange(5), "f": np.asfortranarray(np.ones((3, 4))), "o": [None, "x", b"y", 1.5]},
        "many": [torch.full((1,), float(i)) for i in range(700)],
        "a named tuple": Pair(torch.ones(2), 3),
    }


@pytest.mark.parametrize("name", values())
def test_a_record_returns_its_value_with_strides_and_in_memory_of_its_own(
    name: str, made: MadeBatches
) -> None:
    value = values()[name]
    with made.shared("key", 3) as shared:
        assert shared is not None
        assert shared.records.put(1, value)
        first, second = shared.records.get(1), shared.records.get(1)
        assert shared.records.get(0) is MISSING
    assert type(first) is type(value)
    if isinstance(value, torch.Tensor):
        assert (first.stride(), first.dtype, first.requires_grad) == (
            value.stride(),
            value.dtype,
            value.requires_grad,
        )
        torch.testing.assert_close(first.detach(), value.detach(), rtol=0, atol=0)
        first.detach().resolve_conj().zero_()
        torch.testing.assert_close(second.detach(), value.detach(), rtol=0, atol=0)
    elif name != "arrays":
        assert_equal(first, value)
    else:
        np.testing.assert_equal(first, value)
        assert first["f"].flags.f_contiguous


def check_made_once_and_taken_by_all_others(
    made: MadeBatches, calls: Callable[[str], int], function: Any
) -> None:
    """What a worker draws at random is shared, too: it is a function of the batch's seed."""
    loader = LoaderSettings(SIZE, transform=function, workers=1)
    expected, alone, drawn = taken(NUMBERS, loader, None)
    assert (alone.made, alone.taken, calls(function.__name__)) == (COUNT, 0, COUNT)
    for config in range(3):
        got, count, then = taken(NUMBERS, loader, made)
        assert_equal(got, expected)
        assert torch.equal(then, drawn)
        assert (count.made, count.taken) == ((0, COUNT) if config else (COUNT, 0))
        got[0].zero_()  # what a config writes into its batch is its own
    assert calls(function.__name__) == COUNT


def check_batches_of_another_kind_are_not_taken(made: MadeBatches) -> None:
    loader = LoaderSettings(SIZE, transform=double, workers=1)
    same: dict[str, Any] = {"order": ORDER, "loader": loader, "seed": 3, "epoch": 0}
    others: list[dict[str, Any]] = [
        {"loader": LoaderSettings(5, transform=double, workers=1)},
        {"seed": 4},
        {"epoch": 1},
        {"order": ORDER[::-1].copy()},
        {"part": lambda rows: slice(0, rows // 2)},
    ]
    for change, taken_of in [({}, 0), ({}, COUNT), *((other, 0) for other in others)]:
        count = DataUse()
        list(batches(NUMBERS, **{**same, **change}, made=made, use=count))
        assert count.taken == taken_of, change


@pytest.mark.parametrize("workers", [0])
def test_rows_are_opened_once_for_all_epochs_and_augmented_in_each(
    made: MadeBatches, calls: Callable[[str], int], workers: int
) -> None:
    loader = LoaderSettings(SIZE, decode={"x": opened}, augment={"x": shifted}, workers=workers)
    for epoch in (0, 1):
        for _ in range(2):
            expected, *_ = taken(BYTES, loader, None, epoch)
        calls("opened")
        for _ in range(2):
            assert_equal(taken(BYTES, loader, made, epoch)[0], expected)
        assert calls("opened") == (0 if epoch else ROWS)
    assert len(taken(BYTES, loader, made, None)[0]) == COUNT  # validation augments nothing
    assert calls("shifted") == 0


def test_worker_processes_keep_what_they_make(tmp_path: Path, calls: Callable[[str], int]) -> None:
    """In one test, since the processes import torch once."""
    folders = (MadeBatches(tmp_path / str(number), 1 << 30, "a" * 64) for number in range(8))
    for function in (double, noisy):
        check_made_once_and_taken_by_all_others(next(folders), calls, function)
    test_rows_are_opened_once_for_all_epochs_and_augmented_in_each(next(folders), calls, workers=1)
    check_arguments_are_in_the_key(next(folders), calls)
    check_batches_of_another_kind_are_not_taken(next(folders))
    check_a_killed_process_leaves_its_claims(next(folders))
    check_own_generators_begin_with_the_batch(next(folders), workers=1)
    check_settings_of_a_unit_reach_its_workers(next(folders), calls)


def check_settings_of_a_unit_reach_its_workers(made: MadeBatches, calls: Callable[[str], int]) -> None:
    """Configs with other settings of the process get other batches."""
    loader = LoaderSettings(SIZE, transform=in_its_settings, workers=1)
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: os.environ.update({SCALE: "5"}),
        lambda: os.environ.pop(SCALE),
        lambda: torch.set_default_dtype(torch.float64),
        lambda: np.seterr(over="raise"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SCALE, "2")
        for again in (False, True):
            for change in changes:
                with process_settings.borrowed():
                    change()
                    expected = in_its_settings(torch.from_numpy(NUMBERS.columns["x"][ORDER[:SIZE]]))
                    calls("in_its_settings")
                    got, *_ = taken(NUMBERS, loader, made)
                assert_equal(got[0], expected)
                assert calls("in_its_settings") == (0 if again else COUNT)


def check_arguments_are_in_the_key(made: MadeBatches, calls: Callable[[str], int]) -> None:
    """Configs share a batch if their functions get the same of them."""
    first = LoaderSettings(SIZE, transform=scaled, workers=1).with_hparams({"scale": 2.0, "lr": 0.1})
    other = LoaderSettings(SIZE, transform=scaled, workers=1).with_hparams({"scale": 3.0, "lr": 0.1})
    assert first.parameters == {"scale"}
    for epoch in (0, 1):
        for loader, scale in ((first, 2.0), (other, 3.0), (first, 2.0)):
            got, *_ = taken(NUMBERS, loader, made, epoch)
            assert_equal(got[0], torch.from_numpy(NUMBERS.columns["x"][ORDER[:SIZE]]) * scale + epoch + 1)
        assert calls("scaled") == 2 * COUNT


@pytest.mark.parametrize("workers", [0])
def test_own_generators_begin_with_the_batch(made: MadeBatches, workers: int) -> None:
    check_own_generators_begin_with_the_batch(made, workers)


def check_own_generators_begin_with_the_batch(made: MadeBatches, workers: int) -> None:
    loader = LoaderSettings(SIZE, transform=of_own_generator, workers=workers)
    before = OWN.bit_generator.state
    first, *_ = taken(NUMBERS, loader, None, 0)
    assert OWN.bit_generator.state == before  # it goes on for whoever else draws from it
    OWN.normal()
    later = list(batches(NUMBERS, ORDER, loader, seed=3, skip=2, epoch=0))
    assert_equal(later, first[2:])
    rows = torch.from_numpy(NUMBERS.columns["x"][ORDER]).split(SIZE)
    noise = [float((batch - plain).mean()) for batch, plain in zip(first, rows, strict=True)]
    assert len({round(each, 4) for each in noise}) == COUNT
    assert_equal(taken(NUMBERS, loader, made, 0)[0], first)
    assert not torch.equal(taken(NUMBERS, loader, made, 1)[0][0], first[0])


def test_batches_made_in_the_rank_are_not_shared(made: MadeBatches, calls: Callable[[str], int]) -> None:
    """The user's functions there draw from the config's own generators, and see what its model has set."""
    loader = LoaderSettings(SIZE, transform=noisy)
    expected, _, drawn = taken(NUMBERS, loader, None)
    calls("noisy")
    for _ in range(2):
        got, count, then = taken(NUMBERS, loader, made)
        assert_equal(got, expected)
        assert torch.equal(then, drawn)
        assert (count.made, count.taken, calls("noisy")) == (COUNT, 0, COUNT)


def in_fork(make: Callable[[], Any]) -> Any:
    return call_in_fork(make, 60.0)


SQUARES = DatasetFactory("test_made_once:Squares", Path(__file__).parent, {})
DRAWING = DatasetFactory("test_made_once:Drawing", Path(__file__).parent, {})


@pytest.mark.parametrize(
    ("partition", "settings", "found"),
    [
        (NUMBERS, {"transform": noisy}, {}),
        (NUMBERS, {"transform": of_own_generator}, {}),
        (NUMBERS, {"transform": timed}, {BATCHES: "`transform` in training returned something else"}),
        (NUMBERS, {"transform": counting}, {BATCHES: "`transform` in training returned something else"}),
        (BYTES, {"decode": {"x": opened}, "augment": {"x": shifted}}, {}),
        (BYTES, {"decode": {"x": opened_by_phase}}, {}),
        (BYTES, {"decode": {"x": opened_by_chance}}, {"x": "`decode` of 'x' made another array"}),
        (BYTES, {"decode": {"x": opened_by_own_generator}}, {"x": "`decode` of 'x' made another array"}),
        (
            BYTES,
            {"decode": {"x": opened_with_count}},
            {"x": "`decode` of 'x' made another", BATCHES: "`decode` of 'x' in training returned something"},
        ),
        (NUMBERED, {"dataset": SQUARES, "deterministic": True}, {}),
        (NUMBERED, {"dataset": DRAWING}, {}),
    ],
)
def test_what_is_not_made_the_same_again_is_named(
    partition: Partition, settings: dict[str, Any], found: dict[str, str]
) -> None:
    loader = LoaderSettings(SIZE, **settings)
    said = differing({True: partition}, loader, lambda: loader, SIZE, in_fork)
    assert said.keys() == found.keys()
    assert all(text in said[name] for name, text in found.items())


def test_a_dataset_that_is_said_to_be_deterministic_and_is_not_is_refused() -> None:
    loader = LoaderSettings(SIZE, dataset=DRAWING, deterministic=True)
    with pytest.raises(
        RecipeError, match=r"data\.deterministic is true, and test_made_once:Drawing returned"
    ):
        differing({True: NUMBERED}, loader, lambda: loader, SIZE, in_fork)


def test_a_generator_without_a_seed_is_refused_before_the_start() -> None:
    system = random.SystemRandom()
    loader = LoaderSettings(SIZE, transform=lambda batch: batch + system.random())
    with pytest.raises(TaskError, match=r"transform\.system, a SystemRandom, cannot be seeded"):
        differing({True: NUMBERS}, loader, lambda: loader, SIZE, in_fork)


def test_rows_that_have_changed_since_are_not_kept_any_more(
    made: MadeBatches, calls: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a decode function reads a file that somebody edits during the run."""
    monkeypatch.setattr("cerebro_elastic.data.reading.batches._TESTED", 1.0)
    loader = LoaderSettings(SIZE, decode={"x": opened_with_count})
    assert taken(BYTES, loader, made)[1].differing == ""
    calls("opened")
    assert "`decode` of 'x' has made another row" in taken(BYTES, loader, made, 1)[1].differing
    assert calls("opened") == 1 + ROWS - SIZE  # the row that was tested, and those of the batches behind it
    taken(BYTES, loader, made, 2)
    assert calls("opened") == ROWS


@pytest.mark.parametrize("said", [False, True])
def test_a_datasets_rows_are_opened_once_if_it_is_said_to_be_deterministic(
    said: bool, made: MadeBatches, calls: Callable[[str], int]
) -> None:
    loader = LoaderSettings(SIZE, dataset=SQUARES, deterministic=said)
    for epoch in (0, 1):
        expected, *_ = taken(NUMBERED, loader, None, epoch)
        calls("row")
        assert_equal(taken(NUMBERED, loader, made, epoch)[0], expected)
        assert calls("row") == (0 if epoch and said else ROWS)


def test_a_damaged_record_is_made_again(made: MadeBatches, calls: Callable[[str], int]) -> None:
    loader = LoaderSettings(SIZE, decode={"x": opened})
    expected, *_ = taken(BYTES, loader, made)
    for segment in made.root.rglob("*.segment"):
        content = bytearray(segment.read_bytes())
        for at in range(200, len(content), 512):
            content[at] ^= 1
        segment.write_bytes(content)
    calls("opened")
    assert_equal(taken(BYTES, loader, made)[0], expected)
    assert calls("opened") > 0
    for segment in made.root.rglob("*.segment"):
        segment.write_bytes(b"")
    assert_equal(taken(BYTES, loader, made)[0], expected)


def check_a_killed_process_leaves_its_claims(made: MadeBatches) -> None:
    loader = LoaderSettings(SIZE, transform=double, workers=1)
    expected, *_ = taken(NUMBERS, loader, made)
    folder = next(made.root.glob("*/00000-*"))
    (folder / "index").write_bytes(
        (folder / "index").read_bytes()[:8] + bytes(8 * (COUNT - 1))
    )  # one is kept
    reads, writes = os.pipe()
    if not (child := os.fork()):  # it claims all batches, and makes none
        os.lockf(os.open(folder / "claims", os.O_RDWR), os.F_LOCK, 100)
        os.write(writes, b"x")
        signal.pause()
    assert os.read(reads, 1)
    killer = threading.Timer(0.2, os.kill, (child, signal.SIGKILL))
    killer.start()
    got, count, _ = taken(NUMBERS, loader, made)
    os.waitpid(child, 0)
    killer.join()
    assert_equal(got, expected)
    assert (count.made, count.taken) == (COUNT - 1, 1)


class Overtaken(NamedTuple):
    """Another process puts each record just before this one claims it."""

    records: Records

    def claim(self, number: int) -> bool:
        return self.records.put(number, f"another's {number}")

    def release(self, number: int) -> None: ...


def test_a_batch_is_its_own_though_another_process_has_made_it_meanwhile(made: MadeBatches) -> None:
    def make(numbers: Iterator[int], _: Any) -> Any:
        return (Made(f"own {number}", kept=False) for number in numbers)

    with made.shared("key", 3) as shared:
        assert shared is not None
        overtaken: Any = Overtaken(shared.records)
        got = list(Batches(range(3), make, overtaken, DataUse()))
    assert [each[-1] for each in got] == ["0", "1", "2"]


def test_kept_batches_stay_within_the_limit_and_older_epochs_go_first(tmp_path: Path) -> None:
    batch = torch.rand(4, 1000)
    made = MadeBatches(tmp_path / "made", int(2.5 * 5 * batch.nbytes), "a" * 64)

    def bytes_kept() -> int:
        return sum(path.stat().st_size for path in made.root.rglob("*.segment"))

    def kept(epoch: int | None) -> int:
        with made.shared(("key", epoch), 5, epoch) as shared:
            assert shared is not None
            for number in range(5):
                shared.records.put(number, batch)
                assert bytes_kept() <= made.limit_bytes
            return sum(number in shared.records for number in range(5))

    assert [kept(epoch) for epoch in (None, 3, 4, 2)] == [5, 5, 5, 2]
    epochs = {segment.parent.name.partition("-")[0] for segment in made.root.rglob("*.segment")}
    assert epochs == {"all", "00004", "00002"}
    later = MadeBatches(made.root, made.limit_bytes, "b" * 64)
    with later.shared("key", 5) as shared:
        assert shared is not None
        assert shared.records.put(0, batch)  # what another run has left gives way


def test_a_folder_that_others_can_write_to_is_not_used(made: MadeBatches) -> None:
    made.root.mkdir(mode=0o700)
    made.root.chmod(0o770)
    with pytest.raises(RunError, match="can be written by others"), made.shared("key", 3):
        pass
