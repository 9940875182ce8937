"""A cluster with a web page, and a real browser to look at it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, expect, sync_playwright

from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from squall.ui.access import link_of, running_address
from tests.needs import CHROMIUM, require
from tests.process.ports import free_ports
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

PATIENCE_MS = 100_000
"""For a page on a busy machine."""
TOPOLOGY = "tests/process/ui_topology.py:shown"
expect.set_options(timeout=PATIENCE_MS)
LAPTOP: dict[str, Any] = {"viewport": {"width": 1366, "height": 850}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@contextlib.contextmanager
def cluster_with_page() -> Iterator[Standing]:
    """A cluster of two nodes, its page, and a topology called words."""
    with directory() as cluster:
        cluster.ok("up", "--nodes", "2", "--slots", "2", "--ui", "--ui-port", str(free_ports(1)[0]), "--detach")
        cluster.ok("submit", TOPOLOGY, "--name", "words", "--workers", "2",
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
        with page.expect_websocket():  # or a test takes this first one for a page that was cut off
            page.goto(base + path)
        page.wait_for_selector(".sq-page")
        yield page
    assert troubles == []


def _is_ours(url: str, base: str) -> bool:
    return url.startswith((base, base.replace("http", "ws"), "data:", "blob:"))
