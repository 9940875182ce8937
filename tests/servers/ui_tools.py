"""A cluster with a web page, and a real browser to look at it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from squall.ui.access import link_of, running_address
from tests.needs import CHROMIUM, require
from tests.process.cli import ROOT
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

PATIENCE_MS = 100_000
"""For a page on a busy machine."""
SHOTS = ROOT / "build" / "ui"
LAPTOP: dict[str, Any] = {"viewport": {"width": 1366, "height": 850}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def own_port() -> int:
    """A free port that no test of another worker takes while the server of this page is dead."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in range(9200 + 20 * worker, 9220 + 20 * worker):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("none of this worker's ports is free")


@contextlib.contextmanager
def cluster_with_page() -> Iterator[Standing]:
    """A cluster of one node, its page, and the topology above, called words."""
    with directory() as cluster:
        cluster.ok("up", "--slots", "3", "--ui", "--ui-port", str(own_port()), "--detach")
        cluster.ok("submit", "tests/process/ui_topology.py:shown", "--name", "words", "--workers", "2",
                   "--set", "on_error=fail", "--set", "max_attempts=2")
        yield cluster


@contextlib.contextmanager
def chromium_started() -> Iterator[Browser]:
    require("browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def address(cluster: Standing) -> str:
    """Where its page is, once it is served."""
    return wait_for("the page", lambda: running_address(cluster.run_dir)).url


def page_process(cluster: Standing) -> psutil.Process:
    """The process that serves the page, once it does."""
    def found() -> psutil.Process | None:
        roles = {role_of(process): process for process in processes_of(cluster.run_dir)}
        return roles.get(Role(RoleKind.UI))

    return wait_for("the process of the page", found)


@contextlib.contextmanager
def visitor(chromium: Browser, **context: Any) -> Iterator[Page]:
    """The page of somebody new, more patient than a person."""
    with contextlib.closing(chromium.new_context(**(context or LAPTOP))) as somebody:
        somebody.set_default_timeout(PATIENCE_MS)
        yield somebody.new_page()


@contextlib.contextmanager
def page_at(chromium: Browser, cluster: Standing, path: str = "/", **context: Any) -> Iterator[Page]:
    """A page that was let in by a link. An error in its console, or a request to elsewhere, fails the test."""
    troubles: list[str] = []
    base = address(cluster)
    with visitor(chromium, **context) as page:
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss())[1])
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append(request.url) if not _is_ours(request.url, base) else None)
        page.goto(link_of(cluster.run_dir))
        if path != "/":
            page.goto(base + path)
        page.wait_for_selector(".sq-page")
        yield page
    assert troubles == []


def _is_ours(url: str, base: str) -> bool:
    return url.startswith((base, base.replace("http", "ws"), "data:", "blob:"))


def shot(page: Page, name: str) -> Path:
    """A picture of the whole page, for people to look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name}.png"
    # Playwright itself would write it with a thread, which stays.
    path.write_bytes(page.screenshot(full_page=True))
    return path
