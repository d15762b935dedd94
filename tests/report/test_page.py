"""The report in a real browser, and what its charts are made of."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, sync_playwright

from cerebro_elastic.core.values import Status
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.report.page import curves, gantt, parallel
from cerebro_elastic.report.page.page import Colophon, Subject, render
from cerebro_elastic.report.page.scale import Scale
from cerebro_elastic.report.results import ConfigResult, leaderboard
from cerebro_elastic.report.tables import bytes_text
from cerebro_elastic.report.timeline import timeline

_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's: playwright's own would be downloaded."""
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        if "CI" in os.environ:
            pytest.fail("CI has no browser: apt-get install chromium-headless-shell")
        pytest.skip("no browser: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=["light", "dark"])
def page(
    request: pytest.FixtureRequest, browser: Browser, past: Any, manifest: Manifest, tmp_path: Path
) -> Iterator[Page]:
    """The report of the run in which much went wrong, opened without a network; the console stays empty."""
    (tmp_path / "report.html").write_text(report(past, manifest), encoding="utf-8")
    context = browser.new_context(color_scheme=request.param, offline=True)
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("requestfailed", lambda request: heard.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    context.close()
    assert heard == []


def report(past: Any, manifest: Manifest | None) -> str:
    return render(
        Subject(past.spec, past.events, "val_acc", "max", manifest, Colophon("today", "0", {"Python": "3"}))
    )


def column(page: Page, place: int) -> list[str]:
    return page.locator(f"#leaderboard tbody td:nth-child({place})").all_inner_texts()


def test_the_leaderboard_is_the_stores(page: Page, past: Any) -> None:
    rows = leaderboard(past.events, "val_acc", "max")
    assert column(page, 2) == [row.config for row in rows] == ["c0001", "c0002", "c0000", "c0003"]
    assert column(page, 5) == ["0.9", "0.7", "0.6", "-"]
    assert page.locator("#best").inner_text() == "0.9"
    assert "failed: the loss is NaN" in page.locator("#leaderboard").inner_text()


def test_a_heading_sorts(page: Page) -> None:
    heading = page.get_by_role("columnheader", name="val_acc")
    heading.click()
    assert column(page, 5) == ["0.6", "0.7", "0.9", "-"], "what has no value comes last"
    heading.press("Enter")
    assert column(page, 5) == ["0.9", "0.7", "0.6", "-"]
    assert heading.get_attribute("aria-sort") == "descending"


def test_every_unit_is_a_bar_that_says_what_it_was(page: Page) -> None:
    bars = page.locator("#gantt rect")
    assert bars.count() == 12
    assert page.locator("#gantt rect.lost").count() == 2
    bars.first.hover()
    told = page.locator("#tip")
    assert told.is_visible()
    assert told.inner_text().startswith("c0000 epoch 1 partition 0 on node-0, 0.00 s to 1.00 s")
    page.locator('#gantt path.fault[data-tip*="lost"]').focus()
    assert told.inner_text() == "about 2.6 s: node-1 was lost"


def test_the_optimality_gap_is_told(page: Page) -> None:
    told = " ".join(page.locator("#gap").inner_text().split())
    assert told.startswith("The run took 9.0 s; with the seconds that its units took")
    assert "before 5.6 s. Without hops, waits and lost work it would be 1.61 times as fast" in told


def test_a_config_is_shown_alone_while_its_row_has_the_focus(page: Page) -> None:
    def opacity(config: str) -> str:
        return str(
            page.locator(f'#space polyline[data-config="{config}"]').evaluate(
                "e => getComputedStyle(e).opacity"
            )
        )

    assert opacity("c0000") == "1"
    page.locator('#leaderboard tr[data-config="c0001"]').focus()
    assert (opacity("c0000"), opacity("c0001")) == ("0.12", "1")


def test_what_users_named_is_text(page: Page) -> None:
    assert '<b>odd & "quoted"</b>' in page.locator("#leaderboard").inner_text()
    assert page.locator("b", has_text="odd").count() == 0


def test_it_fits_a_narrow_screen_and_can_be_read(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    ink, ground = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert contrast(ink, ground) > 7


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two ``rgb(r, g, b)``."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("events", [0, 4, 9, 16, 24])
def test_a_run_that_goes_on_has_a_report(past: Any, events: int) -> None:
    past.events = past.events[:events]
    text = report(past, None)
    assert "had not ended" in text
    assert "out of reach" in text


def test_how_choices_did_is_told(past: Any) -> None:
    assert "How choices did" not in report(past, None)
    tried = type(past)({"c0000": {"lr": 0.1}})
    tried.join("node-0", "node-1")
    tried.place()
    tried.visit("c0000", "node-0", 0.0)
    tried.try_on("c0000", "node-0", "node-1")
    text = report(tried, None)
    assert "How choices did" in text
    assert "ddp x2 over 2 nodes" in text
    assert "5 MB" in text


def test_long_runs_stay_small(past: Any) -> None:
    """Bars that cannot be seen one by one are drawn together, but none is left out."""
    line = timeline(past.events)
    many = [span for span in line.spans for _ in range(500)]
    chart = gantt.gantt(type(line)(line.begin, line.begin + 1e6, many, line.marks, line.shares))
    assert chart is not None
    assert sum(len(lane.bars) for lane in chart.lanes) == 3
    assert chart.lanes[0].bars[0].tip == "3500 attempts at 3 configs"
    assert [tick.text for tick in chart.across][:2] == ["0 h", "100 h"]


def test_a_clones_curve_goes_on_where_its_parents_was() -> None:
    def row(name: str, curve: list[float], behind: int) -> ConfigResult:
        return ConfigResult(name, {}, Status.LIVE, "", [{"m": v} for v in curve], (), behind=behind)

    (panel,) = curves.panels([row("parent", [1.0, 2.0, 3.0], 0), row("clone", [4.0], 2)], "m")
    parent, clone = panel.lines
    assert clone.dots[0].x == parent.dots[2].x == curves.RIGHT
    assert clone.dots[0].tip == "clone, epoch 3: m 4"


values = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1) | st.just(0.5)


@example([[0.5], [0.5]], [0.0, -0.0, 1, True, "1"])
@given(
    st.lists(st.lists(values, max_size=4), max_size=5),
    st.lists(st.text() | st.booleans() | values, min_size=5),
)
def test_any_values_can_be_drawn(metrics: list[list[float]], settings: list[Any]) -> None:
    rows = [
        ConfigResult(
            config=f"c{i}",
            hparams={"a": settings[i], "b": i},
            status=Status.LIVE,
            reason="",
            curve=[{"m": value} for value in curve],
            visits=(),
            best=next((value for value in curve if not math.isnan(value)), None),
        )
        for i, curve in enumerate(metrics)
    ]
    drawn = [part for panel in curves.panels(rows, "m") for line in panel.lines for part in line.parts]
    found = parallel.coordinates(rows, "m", {"a", "b"})
    drawn += [path.points for path in found.paths] if found else []
    places = [float(place) for points in drawn for point in points.split() for place in point.split(",")]
    assert all(0 <= place <= 1000 for place in places)


@pytest.mark.parametrize(
    ("low", "high", "log", "told"),
    [
        (0.0, 1.0, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.91, 0.987, False, ["0.92", "0.94", "0.96", "0.98"]),
        (-3, 12, False, ["0", "5", "10"]),
        (1e-5, 1.0, True, ["1e-05", "0.0001", "0.001", "0.01", "0.1", "1"]),
        (2.0, 8.0, True, ["2", "4", "6", "8"]),
        (7.0, 7.0, False, ["7"]),
        (1.0, 1.0 + 1e-15, False, ["1"]),
        (0.91234, 0.91238, False, ["0.91234", "0.91235", "0.91236", "0.91237", "0.91238"]),
        (0.0, math.inf, False, ["0"]),
    ],
)
def test_marks_are_round(low: float, high: float, log: bool, told: list[str]) -> None:
    scale = Scale(low, high, 100, 0, log=log)
    ticks = scale.ticks()
    assert [tick.text for tick in ticks] == told
    assert all(0 <= tick.at <= 100 for tick in ticks)


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (81_499, "81.5 KB"), (4.02e12, "4.02 TB"), (8e16, "80 PB")],
)
def test_bytes_for_people(count: float, told: str) -> None:
    assert bytes_text(count) == told
