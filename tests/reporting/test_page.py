"""The report in a real browser, and what its charts are made of."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, expect

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.page import report as module
from cerebro_elastic.reporting.page.report import ReportMetadata, read_metadata, render
from cerebro_elastic.reporting.page.run_page import spans_together
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.reporting.timeline import timeline

NONE = "\N{EN DASH}"
"""Where there is no value."""


def report(past: Any, manifest: Manifest | None = None) -> str:
    return render(past.spec, past.events, manifest, ReportMetadata("today", "0", {"Python": "3"}))


@contextmanager
def opened(
    browser: Browser, folder: Path, text: str, width: int = 1200, scheme: Any = "light"
) -> Iterator[Page]:
    """A report that is opened without a network; the console stays empty."""
    (folder / "report.html").write_text(text, encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True
    )
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("requestfailed", lambda request: heard.append(request.url))
    page.goto((folder / "report.html").as_uri())
    expect(page.locator("#tiles li").first).to_be_visible()
    yield page
    context.close()
    assert heard == []


@pytest.fixture
def page(browser: Browser, past: Any, manifest: Manifest, tmp_path: Path) -> Iterator[Page]:
    """The report of the run in which much went wrong, in dark colours; others are in light ones."""
    with opened(browser, tmp_path, report(past, manifest), scheme="dark") as page:
        yield page


@pytest.fixture(scope="module")
def scripts(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Calls a function of the page's scripts: ``scripts("scale", "ticks", 0, 1)``."""
    spec = Spec(Plan("a-run", 1, 1), {}, "", "", "", "", {}, "", "0")
    text = render(spec, [], None, ReportMetadata("today", "0", {}))
    with opened(browser, tmp_path_factory.mktemp("report"), text) as page:
        call = "async ([of, name, given]) => (await import(`page/${of}.js`))[name](...given)"
        yield lambda of, name, *given: page.evaluate(call, [of, name, given])


def column(page: Page, place: int) -> list[str]:
    return page.locator(f"#board tr[data-config] td:nth-child({place})").all_inner_texts()


def tips(page: Page) -> list[str]:
    """The texts that appear along the rows of the Gantt chart, each once."""
    page.locator("#gantt").scroll_into_view_if_needed()
    box = page.locator("#gantt").bounding_box()
    assert box is not None
    found: dict[str, None] = {}
    for y in range(29, int(box["height"]) - 26, 22):
        for x in range(0, int(box["width"]), 8):
            page.mouse.move(box["x"] + x, box["y"] + y)
            found[page.locator("#tip").inner_text()] = None
    return list(found)


def test_the_leaderboard_is_the_stores(page: Page, past: Any) -> None:
    rows = leaderboard(RunView(past.events), Objective(metric="val_acc", mode="max"))
    assert column(page, 2) == [row.config for row in rows] == ["c0001", "c0002", "c0000", "c0003"]
    assert column(page, 3) == ["0.9", "0.7", "0.6", NONE]
    assert page.locator("#tiles b").first.inner_text() == "0.9"
    assert "the loss is NaN" in page.locator("#board").inner_text()
    assert "The run has ended (today)." in page.locator("#what").inner_text()


def test_a_heading_sorts(page: Page) -> None:
    heading = page.locator('#board [data-column="best"]')
    heading.click()
    assert column(page, 3) == ["0.6", "0.7", "0.9", NONE], "what has no value comes last"
    heading.press("Enter")
    assert column(page, 3) == ["0.9", "0.7", "0.6", NONE]
    assert page.get_by_role("columnheader", name="val_acc").get_attribute("aria-sort") == "descending"


def test_every_unit_is_a_bar_that_says_what_it_was(browser: Browser, past: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, report(past)) as page:
        texts = tips(page)
        page.get_by_text("What each node did, as a table").press("Enter")
        page.locator("#gantt-node").select_option("node-2")
        page.locator("#gantt-rows").focus()
        table = page.locator("#gantt-rows tbody tr").all_inner_texts()
    bars = [text for text in texts if " to " in text and not text.startswith("about")]
    assert len(bars) == 12
    assert sum("lost" in text or "failed" in text for text in bars) == 2
    assert bars[0] == "c0000 epoch 1 partition 0 on node-0, 0.00 s to 1.00 s: 0.8 s, hop 0.2 s"
    assert "about 2.50 s: node-1 was lost" in texts
    assert table[0].split("\t") == ["0.50 s", "1.50 s", "c0002 epoch 1 partition 0", "0.8 s, hop 0.2 s"]
    assert any("in quarantine\tits disk is full" in row for row in table)
    share = next(share for share in timeline(RunView(past.events)).shares if share.node == "node-2")
    assert f"node-2 in quarantine for about {share.quarantined:.4g} s: its disk is full" in texts


@pytest.mark.parametrize("events", [0, 9, 24])
def test_a_run_that_goes_on_has_a_report(browser: Browser, past: Any, tmp_path: Path, events: int) -> None:
    past.events = past.events[:events]
    with opened(browser, tmp_path, report(past)) as page:
        assert "had not ended" in page.locator("#what").inner_text()
        assert "out of reach" in page.locator("#traffic").inner_text()


def test_no_text_of_a_user_ends_the_script(browser: Browser, past: Any, tmp_path: Path) -> None:
    hostile = "</script><script>document.title = 'hacked'</script><!--<script>"
    past.state.configs["c0003"].hparams["act"] = hostile
    with opened(browser, tmp_path, report(past)) as page:
        expect(page.locator("#board")).to_contain_text(hostile)
        assert page.title() == "a-run: report"


def test_nothing_is_asked_of_a_report(page: Page) -> None:
    assert page.locator("#logs, #run-actions").count() == 0
    page.get_by_role("button", name="c0003", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".story").first).to_have_text("the loss is NaN")
    expect(dialog.locator(".story").last).to_contain_text("no space left")
    expect(dialog.locator(".story").last).to_contain_text("disk full on node-2, in c0003 epoch 1")
    assert dialog.get_by_role("button").all_inner_texts() == ["Close"]


def test_long_runs_stay_small(
    browser: Browser, past: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bars that cannot be seen one by one are drawn together, but none is left out."""
    line = timeline(RunView(past.events))
    many = [span for span in line.spans for _ in range(500)]
    drawn = spans_together(replace(line, end=line.begin + 1e6, spans=many), 500.0)
    assert [bar["node"] for bar in drawn] == ["node-0", "node-1", "node-2"]
    assert sum(bar["attempts"] for bar in drawn) == len(many)
    monkeypatch.setattr(module, "_MOST_SPANS", 5)
    monkeypatch.setattr(module, "_PIXELS", 0.5)
    with opened(browser, tmp_path, report(past)) as page:
        assert any(text.startswith("7 attempts at 3 configs on node-0") for text in tips(page))


def test_one_metric_can_be_chosen(browser: Browser, past: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, report(past)) as page:
        figures = page.locator("#panels figcaption")
        assert figures.all_inner_texts() == ["val_acc", "loss"]
        page.get_by_label("Metric").select_option("loss")
        assert figures.all_inner_texts() == ["loss"]
        page.get_by_label("Scale").select_option("logarithmic")
        assert figures.all_inner_texts() == ["loss, logarithmic"]
        page.get_by_label("Metric").select_option("all")
        assert len(figures.all_inner_texts()) == 2
        assert "logged nothing while it trained" in page.locator("#curves").inner_text()


def downloaded(page: Page, name: str) -> list[list[str]]:
    with page.expect_download() as download:
        page.get_by_role("link", name=name, exact=True).last.click()
    return list(csv.reader(download.value.path().read_text(encoding="utf-8").splitlines()))


def test_tables_are_downloaded_as_csv(browser: Browser, past: Any, tmp_path: Path) -> None:
    past.state.configs["c0003"].hparams["act"] = '=HYPERLINK("http://x/?"&A1), "ü"'
    with opened(browser, tmp_path, report(past)) as page:
        titles, *lines = downloaded(page, "leaderboard")
        assert titles[:6] == ["place", "config", "status", "reason", "metric", "best"]
        assert titles[-2:] == ["act", "lr"]
        assert [line[1] for line in lines] == ["c0001", "c0002", "c0000", "c0003"]
        assert lines[0][4:8] == ["val_acc", "0.9", "1", "2"]
        assert lines[3][-2] == '\'=HYPERLINK("http://x/?"&A1), "ü"', "a text, and no formula"
        titles, *lines = downloaded(page, "metrics of all epochs")
        assert titles == ["config", "epoch", "act", "lr", "loss", "val_acc"]
        assert len(lines) == 5


TOP, BOTTOM = 66, 296
"""The ends of the axes of parallel coordinates, in pixels."""
values = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.floats(0, 1) | st.just(0.5)


@pytest.mark.parametrize(
    ("low", "high", "log", "texts"),
    [
        (0.0, 1.0, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.91, 0.987, False, ["0.92", "0.94", "0.96", "0.98"]),
        (-3, 12, False, ["0", "5", "10"]),
        (1e-5, 1.0, True, ["0.00001", "0.0001", "0.001", "0.01", "0.1", "1"]),
        (2.0, 8.0, True, ["2", "4", "6", "8"]),
        (7.0, 7.0, False, ["7"]),
        (1.0, 1.0 + 1e-15, False, ["1"]),
        (0.91234, 0.91238, False, ["0.91234", "0.91235", "0.91236", "0.91237", "0.91238"]),
        (0.0, math.inf, False, ["0"]),
    ],
)
def test_marks_are_round(scripts: Any, low: float, high: float, log: bool, texts: list[str]) -> None:
    marks = scripts("scale", "ticks", low, high, log)
    assert [scripts("scale", "markText", mark) for mark in marks] == texts


def test_the_metadata_of_a_page_keep_the_names_of_version_0_1(past: Any) -> None:
    page = report(past)
    assert '<meta name="cerebro-colophon"' in page
    assert "&#34;kind&#34;:&#34;ReportMetadata&#34;" in page
    assert read_metadata(page) == ReportMetadata("today", "0", {"Python": "3"})


def test_the_costs_of_strategies_are_shown(browser: Browser, past: Any, tmp_path: Path) -> None:
    tried = type(past)({"c0000": {"lr": 0.1}})
    tried.join("node-0", "node-1")
    tried.place()
    tried.visit("c0000", "node-0", 0.0)
    tried.try_on("c0000", "node-0", "node-1")
    tried.visit("c0000", "node-0", 3.0)
    with opened(browser, tmp_path, report(tried)) as page:
        text = page.locator("#strategies").inner_text()
        assert "How strategies did" in text
        assert "ddp x2 over 2 nodes" in text
        assert "5 MB" in text
        assert "fastest" in text
        assert "profiles" in page.locator("#node-table thead").inner_text()
