"""The live page in a real browser, beside a real etcd."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import ConfigCreated, RunOpened
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.front_end.live_page.access import kept_token
from cerebro_elastic.front_end.live_page.feeds import Places
from cerebro_elastic.store.ledger.journal import Journal
from support.ui_server import HOSTILE, TOKEN, LiveRun, Page, served
from support.waiting import SOON


@contextmanager
def tab_of(browser: Browser) -> Iterator[tuple[Tab, list[str], list[str]]]:
    """A tab, the errors in its console, and the addresses that it has asked for."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    tab = context.new_page()
    errors: list[str] = []
    asked: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on(
        "console", lambda said: said.type == "error" and errors.append(f"{said.text} {said.location['url']}")
    )
    tab.on("request", lambda request: asked.append(request.url))
    yield tab, errors, asked
    context.close()


def test_a_live_run_is_watched_and_steered(run: LiveRun, places: Places, browser: Browser) -> None:
    with served(places) as page, tab_of(browser) as (tab, errors, asked):
        tab.goto(page.url(f"run/{run.name}"))
        board = tab.locator("#board tbody")
        row = {name: board.locator(f'tr[data-config="{name}"]') for name in ("c0000", "c0001", "c0002")}
        expect(row["c0000"]).to_contain_text("0.5")
        expect(row["c0001"].get_by_text(HOSTILE)).to_be_visible()
        assert "token" not in tab.url

        run.visit("c0001", 0.75)
        expect(tab.locator("#tiles")).to_contain_text("best val_acc, c0001")
        expect(board.locator("tr[data-config]").first).to_contain_text("c0001")
        row["c0000"].press("Enter")
        dialog = tab.get_by_role("dialog")
        expect(dialog).to_contain_text("1 visit")
        address = tab.url
        assert address.endswith("#config=c0000")
        run.visit("c0000", 0.6)
        expect(dialog).to_contain_text("2 visits")
        expect(dialog.locator("figure")).to_contain_text("val_acc: 0.6 at epoch 2")
        tab.keyboard.press("Escape")
        expect(row["c0000"]).to_be_focused()
        assert "#" not in tab.url
        run.assign("c0001")
        expect(row["c0001"]).to_contain_text("on node-a")
        expect(tab.locator("#stage")).to_contain_text("trains c0001")

        tab.goto(address)
        expect(dialog).to_contain_text("2 visits")
        tab.get_by_role("button", name="Stop", exact=True).click()
        tab.get_by_label("Your name").fill("Ada <b>")
        tab.get_by_label("Why").fill("diverges")
        tab.get_by_role("button", name="Stop c0000").click()
        expect(row["c0000"]).to_contain_text("diverges (by Ada <b>)")
        expect(row["c0000"]).to_be_focused()
        tab.get_by_role("button", name="c0000", exact=True).click()
        expect(dialog.get_by_role("row", name="diverges (by Ada <b>)")).to_contain_text("a person")
        stop = tab.get_by_role("button", name="Stop", exact=True)
        expect(stop).to_have_attribute("title", "it is stopped: only a live config can be stopped")
        tab.get_by_role("button", name="Clone", exact=True).click()
        tab.get_by_role("textbox", name="lr").fill("nonsense")
        tab.get_by_role("button", name="Clone", exact=True).click()
        expect(tab.get_by_role("alert").get_by_text("lr has to be a number")).to_be_visible()
        tab.get_by_role("textbox", name="lr").fill("2e-1")
        assert tab.get_by_label("Your name").input_value() == "Ada <b>", "the page asks once"
        tab.get_by_role("button", name="Clone", exact=True).click()
        expect(row["c0002"]).to_contain_text("0.2")

        tab.get_by_label("Filter").fill('lr < 0.3 and (status == live or act ~ "x")')
        expect(tab.locator("#shown")).to_have_text("1 config of 3")
        tab.get_by_label("Filter").fill("lr <")
        expect(tab.locator("#filter-problem")).to_contain_text('"lr <" needs a value')
        assert tab.title() != "hacked"
        refused = "the server responded with a status of 409 (Conflict)"
        assert [error for error in errors if refused not in error] == []
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(page.origin).netloc}
    state = run.ledger.state()
    assert dict(state.configs["c0002"].hparams) == {"lr": 0.2, "act": "relu"}
    assert state.configs["c0002"].reason == "cloned from c0000 (by Ada <b>)"
    history = run.ledger.history()
    assert check(history) == []
    folded = State()
    for event in history:
        folded = fold(folded, event)
    assert folded.configs == state.configs


def test_a_config_is_added_and_the_run_ended(run: LiveRun, places: Places, browser: Browser) -> None:
    with served(places) as page, tab_of(browser) as (tab, errors, _):
        tab.goto(page.url(f"run/{run.name}"))
        extend = tab.get_by_role("button", name="Extend the run")
        expect(extend).to_have_attribute("title", "the run has not ended")
        tab.get_by_role("button", name="Add a config").click()
        tab.get_by_role("button", name="Add it").click()
        expect(tab.get_by_role("alert").get_by_text("c0000 is this config already")).to_be_visible()
        tab.get_by_role("textbox", name="lr").fill("0.3")
        tab.get_by_role("combobox", name="act").select_option("tanh")
        tab.get_by_label("Your name").fill("Ada")
        tab.get_by_role("button", name="Add it").click()
        expect(tab.locator('#board tr[data-config="c0002"]')).to_contain_text("0.3")
        tab.get_by_role("button", name="End the run", exact=True).click()
        expect(tab.get_by_role("dialog")).to_contain_text("3 live configs are stopped")
        tab.get_by_role("button", name=f"End {run.name}").click()
        expect(tab.locator('#board tr[data-config="c0002"]')).to_contain_text("by Ada")
        run.leader.end_run("finished", run.ledger.state().asked)
        expect(tab.locator("#said")).to_have_text(
            f"run {run.name} has ended; 3 configs stopped; `extend` continues it"
        )
        expect(tab.get_by_role("button", name="Add a config")).to_have_attribute("title", "the run has ended")
        tab.locator("#slices").scroll_into_view_if_needed()
        assert [error for error in errors if "409 (Conflict)" not in error] == []
    added = run.ledger.state().configs["c0002"]
    assert (dict(added.hparams), added.head) == ({"lr": 0.3, "act": "tanh"}, None)
    assert added.reason == "the run was ended by hand (by Ada)"
    assert check(run.ledger.history()) == []


def test_the_page_comes_back_with_its_server(run: LiveRun, places: Places, browser: Browser) -> None:
    with tab_of(browser) as (tab, _, _):
        with served(places) as page:
            tab.goto(page.url(f"run/{run.name}"))
            expect(tab.locator("#tiles")).to_contain_text("c0000")
        expect(tab.locator("#connection")).to_have_text("the server is out of reach; trying again")
        run.visit("c0001", 0.9)
        with served(places, port=page.port):
            expect(tab.locator("#tiles")).to_contain_text("c0001")
            expect(tab.locator("#connection")).to_be_hidden()
            run.ledger.store.revoke(run.leader_lease)
            expect(tab.locator("#notice")).to_contain_text("No controller leads the run at this moment.")
            run.ledger.lead("another", run.ledger.store.grant(60))
            expect(tab.locator("#notice")).to_be_hidden()
            tab.locator("#health-body").scroll_into_view_if_needed()
            expect(tab.locator("#health-body")).to_contain_text("another leads the run.")


@pytest.fixture
def session(places: Places) -> Iterator[tuple[requests.Session, Page]]:
    """A program with the cookie, and its server."""
    with served(places) as page, requests.Session() as session:
        assert session.get(page.url()).status_code == 200
        yield session, page


def headers(session: requests.Session, page: Page) -> dict[str, str]:
    """What the page sends with a request that changes something."""
    token = re.search(r'name="cerebro-token" content="(\w+)"', session.get(page.origin).text)
    assert token is not None
    return {"Origin": page.origin, "X-Cerebro-Token": token[1]}


def test_tables_and_curves_for_programs(
    run: LiveRun, session: tuple[requests.Session, Page], tmp_path: Path
) -> None:
    client, page = session
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"step": 5, "loss": 0.5}\n{"step": 9, "epoch": 1, "loss": 0.25, "acc": NaN}\n')
    run.visit("c0001", 0.5, log=str(rows))
    run.visit("c0001", 0.5, log=str(tmp_path / "gone.jsonl"))
    url, until = f"{page.origin}/run/{run.name}", time.monotonic() + SOON
    while (answer := client.get(f"{url}/leaderboard.csv")).status_code == 409:
        assert answer.json() == {"problem": "the run's record is being read"}
        assert time.monotonic() < until
    assert [row["config"] for row in csv.DictReader(answer.text.splitlines())] == ["c0000", "c0001"]
    assert client.get(f"{url}/metrics.csv").text.splitlines()[1].startswith("c0000,1,")
    expected = {"loss": [[5, 0.5], [9, 0.25]], "acc": [[9, None]]}
    while client.get(f"{url}/steps?config=c0001").json() != {"metrics": expected}:
        assert time.monotonic() < until
    assert client.get(f"{url}/steps?config=c9").json() == {"metrics": {}}
    assert client.get(f"{url}/another.csv").status_code == 404
    assert requests.get(f"{url}/metrics.csv", timeout=30).status_code == 403


def test_requests_that_are_refused(
    run: LiveRun, places: Places, session: tuple[requests.Session, Page]
) -> None:
    client, page = session
    for url in (page.origin, f"{page.origin}/?token=wrong", f"{page.origin}/assets/main.js"):
        assert requests.get(url, timeout=30).status_code == 403
    needed = headers(*session)
    stop = f"{page.origin}/run/{run.name}/stop"
    attacks = [
        {},
        {"Origin": page.origin},
        {**needed, "Origin": "http://evil.example"},
        {**needed, "Origin": "null"},
        {**needed, "X-Cerebro-Token": TOKEN},
    ]
    for attack in attacks:
        assert client.post(stop, json={"config": "c0000"}, headers=attack).status_code == 403
    assert requests.post(stop, json={"config": "c0000"}, headers=needed, timeout=30).status_code == 403
    malformed = [{"config": 3}, {"config": "c0000", "x": 1}, [], {"config": "c9"}]
    answers = [client.post(stop, json=body, headers=needed) for body in malformed]
    assert [answer.status_code for answer in answers] == [409] * 4
    assert "has no config 'c9'; choices: c0000, c0001" in answers[-1].json()["problem"]
    policy = client.get(page.origin).headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    cookie = requests.get(page.url(), timeout=30).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    with served(places, read_only=True) as shown:
        client.get(shown.url())
        refused = client.post(
            f"{shown.origin}/run/{run.name}/stop", json={}, headers={**needed, "Origin": shown.origin}
        )
        assert (refused.status_code, "read-only" in refused.text) == (403, True)
    assert run.ledger.state().configs["c0000"].status is Status.LIVE


def test_a_thousand_configs_of_a_record(tmp_path: Path, browser: Browser) -> None:
    """A run that is not live any more, and the page of all runs; only rows in sight are in the document."""
    plan = Plan("many", 2, 3)
    events = [
        RunOpened(1, plan),
        *(ConfigCreated(2 + i, Config(f"c{i:04}", {"lr": i / 1000})) for i in range(1000)),
    ]
    folder = tmp_path / "many"
    folder.mkdir()
    journal = Journal(folder / "history.jsonl")
    for event in events:
        journal.append([event])
    spec = Spec(plan, {}, "", "", "", str(tmp_path), {}, "", "0")
    (folder / "spec.json").write_text(encode(spec))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "spec.json").write_text(encode(spec))
    (damaged / "history.jsonl").write_text("nonsense\n")
    with served(Places(tmp_path)) as page, tab_of(browser) as (tab, errors, _):
        tab.goto(page.url())
        expect(tab.locator(".card").get_by_text("1000 live")).to_be_visible()
        expect(tab.locator(".card").get_by_text("history.jsonl:1: the history is damaged")).to_be_visible()
        tab.get_by_role("link", name="many").click()
        rows = tab.locator("#board tr[data-config]")
        expect(rows.first).to_contain_text("c0000")
        expect(tab.get_by_text(re.compile("^1,?000 configs$"))).to_be_visible()  # all rows are there
        assert rows.count() < 60
        rows.first.press("End")
        expect(rows.last).to_be_focused()
        expect(rows.last).to_contain_text("c0999")
        rows.last.press("Enter")
        expect(tab.get_by_role("dialog")).to_contain_text("Not possible now: the run is not live")
        tab.keyboard.press("Escape")
        tab.goto(f"{page.origin}/run/mani")
        expect(tab.locator("main")).to_contain_text("did you mean 'many'?")
        assert [error for error in errors if "404" not in error] == []


def test_the_token_of_a_home_is_kept(tmp_path: Path) -> None:
    token = kept_token(tmp_path)
    assert len(token) > 20
    assert kept_token(tmp_path) == token
    assert [path.name for path in tmp_path.iterdir()] == ["ui-token"]
