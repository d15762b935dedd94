"""The live page in a frame, as a notebook on this machine shows it, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, expect

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.front_end.live_page.access import Access
from cerebro_elastic.front_end.live_page.feeds import Places
from cerebro_elastic.front_end.live_page.serve import FRAMES, PageServer
from support.ui_server import LiveRun


class Notebook(BaseHTTPRequestHandler):
    """A page of another port that has the panel in a frame."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f'<title>notebook</title><iframe src="{self.server.shown}"></iframe>'.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def notebook() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Notebook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(places: Places) -> Iterator[PageServer]:
    with closing(PageServer(places, Access("a-token", frames=FRAMES), 0)) as server:
        yield server


def test_a_notebook_of_this_machine_shows_the_page_and_no_other_site_does(
    run: LiveRun, server: PageServer, notebook: ThreadingHTTPServer, browser: Browser
) -> None:
    context = browser.new_context()
    tab = context.new_page()
    notebook.shown = server.address(run.name)
    tab.goto(f"http://localhost:{notebook.server_port}/")
    frame = tab.frame_locator("iframe")
    row = frame.locator('#board tr[data-config="c0000"]')
    row.press("Enter")
    frame.get_by_role("button", name="Stop", exact=True).click()
    frame.get_by_role("button", name="Stop c0000").click()
    expect(row).to_contain_text("stopped by hand")
    assert run.ledger.state().configs["c0000"].status is Status.STOPPED
    assert "token" not in tab.frames[1].url
    notebook.shown = f"http://127.0.0.1:{server.port}/run/{run.name}"
    with tab.expect_console_message(lambda message: "frame-ancestors" in message.text):
        tab.goto(f"http://another.localhost:{notebook.server_port}/")
    assert tab.frames[1].locator("#tiles").count() == 0
    context.close()
