"""A real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

expect.set_options(timeout=60_000)  # by itself 5 s, too little for a busy machine
_BROWSERS = ("chromium", "google-chrome", "chromium-headless-shell")
"""Those that people have first: a headless shell refuses less, such as storage in another site's frame."""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Debian's: playwright's own would be downloaded."""
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        if "CI" in os.environ:
            pytest.fail("CI has no browser: apt-get install chromium")
        pytest.skip("no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
