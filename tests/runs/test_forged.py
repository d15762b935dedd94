"""Records that were changed, by an accident or by somebody who knows how they are made: each field of each
line of a run's history, and of all that was made of it, one at a time.

From test to test a forger makes more anew besides a line. A forger who makes all files of the run anew,
checkpoints included, is detected only with a head of the record that was noted before.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from recorded_run import record
from typer.testing import CliRunner

from cerebro_elastic.cli.app import app
from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.model.codec import UnreadableValue, decode
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CerebroError, DamagedCheckpoint
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint.manifest import compact
from cerebro_elastic.hop.checkpoint.manifest import read as read_manifest
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results import record_chain
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.output_checks import check_report
from cerebro_elastic.runs.results.record_checks import check_manifests, check_spec
from cerebro_elastic.runs.results.replay import compare_results, replay
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.versions import on_record
from cerebro_elastic.store.ledger.history import decode_event
from cerebro_elastic.store.ledger.journal import Line, chain_digest, read_lines, with_digest
from cerebro_elastic.system.files import locate

Bodies: TypeAlias = list[dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunResult]:
    threads, path = torch.get_num_threads(), list(sys.path)
    yield record(tmp_path_factory.mktemp("project"))
    torch.set_num_threads(threads)
    sys.path[:] = path
    del sys.modules["a_recorded_model"]


@pytest.fixture(scope="module")
def other(run: RunResult) -> RunResult:
    """Another run of the project, with another seed."""
    return record(Path(run.spec.root), "other", seed=4)


@pytest.fixture
def folder(run: RunResult) -> Iterator[RunFolder]:
    """The run's folder, to do harm to."""
    before = {file: file.read_bytes() for file in run.folder.path.rglob("*") if file.is_file()}
    yield run.folder
    for file in [file for file in run.folder.path.rglob("*") if file.is_file()]:
        if file not in before:
            file.unlink()
    for file, content in before.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def bodies(folder: RunFolder) -> Bodies:
    return [json.loads(line.body) for line in read_lines(folder.history)]


def text_of(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def write(folder: RunFolder, bodies: Bodies, *, heads: bool) -> None:
    """With all digests made anew, and if ``heads`` also those that assignments bear."""
    digest, known, lines = "", {}, []
    for body in copy.deepcopy(bodies):
        holder = body.get("attempt", body)
        if heads and "record" in holder:
            holder["record"]["digest"] = known.get(holder["record"]["revision"], "")
        digest = known[body["revision"]] = chain_digest(digest, text_of(body))
        lines.append(with_digest(text_of(body), digest) + "\n")
    folder.history.write_text("".join(lines))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def changed(document: Any, path: tuple[Any, ...]) -> Any:
    """With another value at ``path``, of the same type."""
    document = copy.deepcopy(document)
    at = document
    for key in path[:-1]:
        at = at[key]
    match at[path[-1]]:
        case bool(value):
            at[path[-1]] = not value
        case int(value) | float(value):
            at[path[-1]] = value + 1
        case str(value):
            at[path[-1]] = value[:-1] + ("1" if value.endswith("0") else "0")
        case _:
            at[path[-1]] = {}
    return document


def names(path: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(key for key in path if isinstance(key, str))


def wrong(run: RunResult) -> set[str]:
    """The violations that ``verify`` finds."""
    return {violation.invariant for violation in verify(run)}


def differs(run: RunResult, config: str) -> bool:
    visits = list(replay(run, config))
    return not all(visit.same for visit in visits) or bool(list(compare_results(run, config, visits)))


def test_the_record_as_it_is_breaks_nothing(run: RunResult) -> None:
    notes: list[str] = []
    assert verify(run, say=notes.append, head=run.lines[4].digest) == []
    assert notes == [
        f"it continues from the head {str(run.lines[4].digest)[:16]}: line 5 of {len(run.lines)}",
        "12 of 12 decisions made again, all the same",
    ]
    for config in run.configs:
        assert not differs(run, config)


class TestTheHistory:
    def test_each_field_of_each_line_is_covered_and_the_line_is_named(self, run: RunResult) -> None:
        tried = 0
        for number, line in enumerate(run.lines, start=1):
            for path in leaves(json.loads(line.body)):
                body = text_of(changed(json.loads(line.body), path))
                with suppress(UnreadableValue):  # it is no event any more, and named for that
                    other = Line(decode_event(body), body, line.digest)
                    (story,) = record_chain.chain([*run.lines[: number - 1], other, *run.lines[number:]])
                    assert story.startswith(f"line {number} "), path
                    tried += 1
        assert tried > 300

    @pytest.mark.parametrize("how", ["taken out", "doubled", "exchanged"])
    def test_each_line_stays_where_it_was(self, run: RunResult, how: str) -> None:
        lines = run.lines
        for place, (one, next_one) in enumerate(pairwise(lines)):
            two = {"taken out": [next_one], "doubled": [one, one, next_one], "exchanged": [next_one, one]}[
                how
            ]
            (story,) = record_chain.chain([*lines[:place], *two, *lines[place + 2 :]])
            assert story.startswith(f"line {place + 1 + (how == 'doubled')} ")

    def test_digests_made_anew_do_not_lead_to_the_heads_in_assignments(self, folder: RunFolder) -> None:
        """A head covers what the leader had read when it decided: not another unit that it assigned then."""
        true = bodies(folder)
        last = max(body["attempt"]["record"]["revision"] for body in true if body["kind"] == "UnitAssigned")
        covered = [number for number, body in enumerate(true) if body["revision"] <= last]
        assert len(covered) >= len(true) - 5, "all but the last units and the end"
        for number in covered[2:]:
            write(folder, [*true[:number], named_anew(true[number]), *true[number + 1 :]], heads=False)
            (story,), _ = record_chain.assignments(read_lines(folder.history))
            assert "not as whoever led had them" in story

    def test_heads_made_anew_are_not_those_of_the_checkpoints_nor_of_the_report(
        self, folder: RunFolder
    ) -> None:
        """The checkpoints that are kept cover the lines before their assignments; the report covers all."""
        true, origins = bodies(folder), known_origins(folder)
        last = max(origin.record.revision for origin in origins if origin.record is not None)
        for number, body in enumerate(true):
            write(folder, [*true[:number], named_anew(body), *true[number + 1 :]], heads=True)
            forged = RunResult(folder)
            assert not list(record_chain.chain(forged.lines))
            found = list(record_chain.checkpoints(forged.lines, origins, grows=False))
            assert bool(found) == (body["revision"] <= last)
            assert [violation.invariant for violation in violations(check_report(forged))] == ["report"]

    def test_a_missing_end_is_found_by_later_files(self, folder: RunFolder) -> None:
        lines, origins = read_lines(folder.history), known_origins(folder)
        assigned = max(origin.attempt for origin in origins)
        for length in range(2, len(lines)):
            found = list(record_chain.checkpoints(lines[:length], origins, grows=False))
            assert bool(found) == (lines[length - 1].event.revision < assigned)
            assert not list(record_chain.checkpoints(lines[:length], origins, grows=True))

    def test_verify_checks_a_head_that_was_noted(self, folder: RunFolder) -> None:
        head = RunResult(folder).head
        assert head is not None
        shutil.rmtree(folder.path / "checkpoints")
        (folder.path / "checkpoints").mkdir()
        folder.report.unlink()
        write(folder, bodies(folder)[:-1], heads=True)
        command = CliRunner().invoke(app, ["verify", str(folder.path), "--head", head.digest])
        assert command.exit_code == 1
        assert f"no line of it has the head {head.digest}" in command.output
        noted = str(RunResult(folder).lines[-1].digest)
        command = CliRunner().invoke(app, ["verify", str(folder.path), "--head", noted[:20]])
        assert "continues from the head" in command.output

    def test_lines_that_are_appended(self, folder: RunFolder) -> None:
        """With digests that fit, and heads that were noted before."""
        true = bodies(folder)
        better = copy.deepcopy(true[3])
        better["config"]["id"], better["revision"] = "c0009", true[-1]["revision"] + 1
        write(folder, [*true, better], heads=True)
        assert "history" in wrong(RunResult(folder))
        read = {"kind": "StateRead", "v": 1, "revision": better["revision"], "state": true[0]["state"]}
        write(folder, [*true, read], heads=True)
        notes: list[str] = []
        verify(RunResult(folder), say=notes.append)
        assert any(
            "the state was read afresh" in note and "8 visits of before not in it" in note for note in notes
        )

    def test_that_of_another_run_is_not_this_ones(self, folder: RunFolder, other: RunResult) -> None:
        folder.history.write_bytes(other.folder.history.read_bytes())
        assert {"spec", "record", "checkpoints", "report"} <= wrong(RunResult(folder))


UNSEEN: dict[tuple[str, ...], str] = {
    **dict.fromkeys(
        [(kind, "revision") for kind in ("StateRead", "LeaderChanged", "RunEnded")]
        + [("StateRead", "state", "revision")],
        "a number of the store's that nothing else refers to, and that is in order still",
    ),
    ("LeaderChanged", "leader"): "a name that nothing else refers to",
    ("NodeJoined", "node", "boot"): "the same",
    ("NodeJoined", "node", "host"): "the same",
    ("NodeJoined", "node", "registration"): "it is the revision of the line",
    **dict.fromkeys(
        [
            *(("UnitCommitted", "visit", name) for name in ("batches_made", "data_seconds", "replicas")),
            *(("UnitCommitted", "visit", "resources", name) for name in ("cpu", "memory_bytes")),
        ],
        "a measure of what the host had, which changes no result",
    ),
}
"""The fields of a record whose change nothing but its digests can find, and why. Versions of packages that
are not those of here make of decisions a note."""


def test_without_its_digests_all_that_a_result_depends_on_is_found(folder: RunFolder) -> None:
    """By what follows from what, and by training again: a forger has made digests and heads anew, and the
    checkpoints, as if all were made again after damage, bear no heads."""
    for path in (folder.path / "checkpoints").glob("*/*/manifest.json"):
        path.write_bytes(compact(without(json.loads(path.read_bytes()), ("origin", "record"))))
    folder.report.unlink()
    folder.curves.unlink()
    true, tried = (
        bodies(folder),
        {("LeaderChanged", "versions", name) for name in on_record(RunResult(folder).spec)},
    )
    assert wrong(RunResult(folder)) == set()
    replayed = []
    for number, body in enumerate(true):
        for path in leaves(body):
            field = (body["kind"], *names(path))
            if field in tried or path[0] in ("kind", "v") or "record" in field:
                continue
            tried.add(field)
            lines = [*true[:number], changed(body, path), *true[number + 1 :]]
            write(folder, lines, heads=True)
            try:
                run = RunResult(folder)
            except CerebroError:
                continue
            found = bool(wrong(run))
            if not found and body["kind"] == "UnitCommitted":
                found = differs(run, body["visit"]["unit"]["config"])
                replayed.append(field[-1])
            assert found != (field in UNSEEN), field
    by_chance = {field for field in UNSEEN if field[-1] == "replicas"}  # if a copy came while a unit trained
    assert {*UNSEEN} - by_chance <= tried
    measured = {field[-1] for field in tried & {*UNSEEN} if field[0] == "UnitCommitted"}
    assert sorted(replayed) == sorted([*measured, "train_loss", "val_loss"])


class TestWhatWasMadeOfIt:
    def test_each_value_of_the_spec(self, run: RunResult) -> None:
        document = json.loads(run.folder.spec.read_text())
        for path in leaves(document):
            if path[0] in ("kind", "v") or changed(document, path) == document:
                continue
            try:
                spec = decode(text_of(changed(document, path)), Spec)
                found = violations(check_spec(spec, spec.load_recipe(), run.view, run.events))
            except CerebroError:
                continue
            assert found, path

    def test_bytes_and_values_of_a_checkpoints_manifest(self, run: RunResult) -> None:
        """Without the head of the record it looks as one that was made again after damage: a note says so."""
        file = min((run.folder.path / "checkpoints").glob("c0000/*/manifest.json"))
        name, written = f"c0000/{file.parent.name}", file.read_bytes()
        assert not accused(run, name, written)
        for at in range(0, len(written), 11):  # prime to all that repeats
            assert accused(run, name, written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :]), written[
                at:
            ]
        document = json.loads(written)
        paths = list(leaves(document))
        for path in paths:
            assert accused(run, name, compact(changed(document, path))), path
        for path in {whole[:end] for whole in paths for end in range(1, len(whole) + 1)}:
            lacks = compact(without(document, path))
            assert accused(run, name, lacks) or path == ("origin", "record"), path
            assert accused(run, name, compact(without(document, path, as_name="other"))), path
            assert accused(run, name, compact(replaced(document, path, []))), path

    def test_checkpoints_that_were_exchanged(self, folder: RunFolder) -> None:
        one, two = sorted((folder.path / "checkpoints" / "c0000").iterdir())[-2:]
        aside = one.with_name("aside")
        one.rename(aside)
        two.rename(one)
        aside.rename(two)
        assert {"durability", "checkpoints"} <= wrong(RunResult(folder))
        shutil.rmtree(one)
        shutil.rmtree(two)

    def test_logged_rows(self, folder: RunFolder) -> None:
        one, two = sorted((folder.path / "logs" / "c0000").iterdir())[:2]
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        assert wrong(RunResult(folder)) == {"rows"}
        visits = list(replay(RunResult(folder), "c0000"))
        assert [visit.same for visit in visits] == [False, False, True, True]
        assert visits[0].differences[0].field.startswith("row 1, ")
        one.unlink()
        assert wrong(RunResult(folder)) == {"rows"}

    def test_each_line_of_the_report(self, folder: RunFolder) -> None:
        page, run = folder.report.read_text().splitlines(keepends=True), RunResult(folder)
        for number in [
            *range(0, len(page), 40),
            *(n for n, line in enumerate(page) if "data-config" in line),
        ]:
            folder.report.write_text(
                "".join([*page[:number], "<b>1</b>" + page[number], *page[number + 1 :]])
            )
            assert violations(check_report(run)), number

    def test_an_exported_model(self, run: RunResult, tmp_path: Path) -> None:
        export(run, tmp_path / "model")
        assert verify(run, export=tmp_path / "model") == []
        for name in ("README.md", "record.json", "model.safetensors"):
            shutil.copytree(tmp_path / "model", tmp_path / name)
            file = tmp_path / name / name
            content = file.read_bytes()
            file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
            assert [v.invariant for v in verify(run, export=tmp_path / name)] == ["export"], name


def test_visits_that_were_exchanged_are_found_by_their_checkpoints_and_by_replay(folder: RunFolder) -> None:
    """As if the config had visited the partitions the other way round, in all lines, with all digests."""

    def swap(value: Any) -> Any:
        if isinstance(value, list):
            return [swap(each) for each in value]
        if not isinstance(value, dict):
            return value
        value = {key: swap(each) for key, each in value.items()}
        if value.get("config") == "c0000" and "partition" in value:
            value["partition"] = 1 - value["partition"]
        return value

    write(folder, [swap(body) for body in bodies(folder)], heads=True)
    run = RunResult(folder)
    assert {"checkpoints", "data", "decisions", "report"} <= wrong(run)
    fields = [{difference.field for difference in visit.differences} for visit in replay(run, "c0000")]
    assert all({"digest", "samples", "metric train_loss"} <= each for each in fields), fields


def test_the_command_names_visit_field_and_both_values_and_fails(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # or the command replaces this process by one that has it
    true = bodies(folder)
    number = next(n for n, body in enumerate(true) if "val_loss" in str(body.get("visit", "")))
    visit = true[number]["visit"]
    visit["metrics"]["val_loss"] = 0.001
    write(folder, true, heads=False)
    command = CliRunner().invoke(app, ["replay", str(folder.path), "--config", visit["unit"]["config"]])
    assert command.exit_code == 1
    said = " ".join(command.output.split())
    assert "metric val_loss: recorded 0.001, replayed 0." in said
    assert "best val_loss: recorded 0.001, replayed 0." in said
    assert "1 of 4 visits of" in said


def test_a_config_left_in_a_partition_is_replayed_part_by_part(folder: RunFolder) -> None:
    """Also where nothing follows: of the last visit only a part is on record, as if a node had left then."""
    true = bodies(folder)
    last = max(n for n, body in enumerate(true) if body["kind"] == "UnitCommitted")
    visit = true[last]["visit"]
    visit |= {"whole": False, "batches": 1, "samples": 3}
    write(folder, true[: last + 1], heads=True)
    *before, part = replay(RunResult(folder), visit["unit"]["config"])
    assert all(each.same for each in before)
    fields = {difference.field for difference in part.differences}
    assert "digest" in fields
    assert not fields & {"samples", "batches", "whole"}, "it was left after one batch again"


TEXTS: dict[str, tuple[Any, ...]] = {
    "StateRead": ("state", "plan", "run"),
    "LeaderChanged": ("leader",),
    "NodeJoined": ("node", "host"),
    "ConfigCreated": ("config", "id"),
    "HomesAssigned": ("homes", "0", 0),
    "UnitAssigned": ("attempt", "node"),
    "UnitCommitted": ("visit", "node"),
    "RunEnded": ("outcome",),
}


def named_anew(body: dict[str, Any]) -> dict[str, Any]:
    """With another text in it, which leaves it an event."""
    return changed(body, TEXTS[body["kind"]])


def violations(findings: Iterator[Any]) -> list[Violation]:
    return [finding for finding in findings if isinstance(finding, Violation)]


def known_origins(folder: RunFolder) -> list[Origin]:
    manifests = [manifest for _, manifest in checkpoint.manifests(f"{folder.path}/checkpoints")]
    return [m.origin for m in manifests if isinstance(m, checkpoint.Manifest) and m.origin is not None]


def accused(run: RunResult, name: str, written: bytes) -> bool:
    """Whether a manifest is found to be changed that holds this."""
    try:
        found: checkpoint.Manifest | DamagedCheckpoint = read_manifest(written, locate(name))
    except DamagedCheckpoint as damage:
        found = damage
    origins = [found.origin] if isinstance(found, checkpoint.Manifest) and found.origin is not None else []
    stories = list(record_chain.checkpoints(run.lines, origins, grows=False))
    return bool(stories or violations(check_manifests(run.spec, run.view, run.events, {name: found})))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    document = copy.deepcopy(document)
    reduce(getitem, path[:-1], document)[path[-1]] = value
    return document


def without(document: Any, path: tuple[Any, ...], as_name: str = "") -> Any:
    """Without what is at ``path``, or with another name for it."""
    document = copy.deepcopy(document)
    holder = reduce(getitem, path[:-1], document)
    value = holder.pop(path[-1])
    if as_name:
        holder[as_name] = value
    return document
