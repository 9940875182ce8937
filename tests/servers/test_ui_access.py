"""The running server of the web page: who is let in, what comes of the deaths of its process and of Nimbus, and hostile
clients."""

from __future__ import annotations

import http.client
import json
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Browser, expect

from tests.process.cli import squall, start
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.servers.ui_tools import (
    PATIENCE_MS,
    address,
    chromium_started,
    cluster_with_page,
    page_at,
    page_process,
    shot,
    visitor,
)

expect.set_options(timeout=PATIENCE_MS)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster() -> Iterator[Standing]:
    """One for each test: they kill its daemons."""
    with cluster_with_page() as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with chromium_started() as browser:
        yield browser


def asked(url: str, method: str = "GET", **headers: str) -> int:
    """The status of an answer."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=given), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def acked(cluster: Standing) -> int:
    return int(cluster.described("words")["acked"])


def goes_on(cluster: Standing) -> None:
    before = acked(cluster)
    wait_for("more acks", lambda: acked(cluster) > before + 20)


def test_a_page_reconnects_after_its_server_and_nimbus_were_killed(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words") as page:
        url = page.url
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        page.evaluate("window.before = true")
        with cluster.keeper_held():
            page_process(cluster).kill()
            expect(page.locator("#sq-stale")).to_contain_text("has not answered for")
            expect(page.locator("#sq-stale")).to_be_visible()
            shot(page, "server-killed")
        page_process(cluster)
        page.wait_for_function("!window.before", timeout=120_000)
        expect(page.locator("#sq-stale")).to_be_hidden()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        assert page.url == url
        with cluster.keeper_held():
            cluster.nimbus().kill()
            expect(page.get_by_text("stale: as of")).to_be_visible()
            shot(page, "nimbus-killed")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        page.goto(address(cluster))
        expect(page.get_by_role("cell", name="killed by SIGKILL")).to_have_count(2)


def test_links_work_once_and_others_get_nowhere(chromium: Browser, cluster: Standing) -> None:
    given = cluster.apart("ui", "--link").stdout.strip()
    base = address(cluster)
    with visitor(chromium) as first, visitor(chromium) as second:
        first.goto(given)
        expect(first.locator("h2").first).to_be_visible()
        second.goto(given)
        expect(second.get_by_text("squall ui --link")).to_be_visible()
        second.goto(base)
        expect(second.get_by_text("You have no session here")).to_be_visible()
    token = cluster.run_dir.ui_token.read_text().strip()
    assert asked(f"{base}/", Authorization=f"Bearer {token}") == 200
    assert asked(f"{base}/", Authorization="Bearer wrong") == 401
    assert asked(f"{base}/", Authorization=f"Bearer {token}", Origin="http://evil.example") == 403
    assert asked(f"{base}/", Authorization=f"Bearer {token}", Host="evil.example") == 403
    assert asked(f"{base}/healthz") == 200


def test_read_only_has_no_buttons(chromium: Browser, cluster: Standing) -> None:
    page_of_cluster = page_process(cluster)
    with cluster.keeper_held():
        page_of_cluster.kill()
        wait_for("its end", lambda: page_of_cluster.status() == psutil.STATUS_ZOMBIE)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        own = start("ui", "--read-only", "--port", str(port), "--dir", cluster.path)
        try:
            assert own.stdout is not None
            assert own.stdout.readline().startswith(f"http://127.0.0.1:{port}/enter?code=")
            with page_at(chromium, cluster, "/topology/words") as page:
                expect(page.get_by_text("read-only")).to_be_visible()
                expect(page.get_by_text("live", exact=True)).to_be_visible()
                assert page.get_by_role("button", name="Kill").count() == 0
            token = cluster.run_dir.ui_token.read_text().strip()
            assert asked(f"http://127.0.0.1:{port}/", "POST", Authorization=f"Bearer {token}") == 403
        finally:
            own.terminate()
            own.communicate(timeout=60)
        assert own.returncode == 0


def test_a_hostile_client_changes_nothing_and_slows_no_topology(cluster: Standing) -> None:
    where = urlsplit(address(cluster))
    at = (where.hostname or "", where.port or 0)
    server = page_process(cluster)
    before, chance = server.memory_info().rss, random.Random(5)
    opened: list[socket.socket] = []
    try:
        opened += [socket.create_connection(at, timeout=60) for _ in range(900)]
        for one in opened[:150]:
            begins = chance.choice((b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"))
            try:
                one.sendall(begins + chance.randbytes(5000))
            except OSError:
                continue  # it was closed: right
        goes_on(cluster)
        assert cluster.described("words")["status"] == "ACTIVE"
    finally:
        for one in opened:
            one.close()
    wait_for("an answer to others", lambda: _healthy(at))
    assert server.is_running()
    assert page_process(cluster) == server
    assert server.memory_info().rss - before < 64 << 20


def _healthy(at: tuple[str, int]) -> bool:
    connection = http.client.HTTPConnection(*at, timeout=10)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_a_slow_reader_is_cut_off(cluster: Standing) -> None:
    where = urlsplit(address(cluster))
    token = cluster.run_dir.ui_token.read_text().strip()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((where.hostname, where.port))
        ask = f"GET /topology/words HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        server = page_process(cluster)
        slow.sendall(ask.encode() * 50)
        goes_on(cluster)
        wait_for("its end", lambda: _connections(server, slow.getsockname()[1]) == 0)
    assert server.is_running()


def _connections(server: psutil.Process, port: int) -> int:
    return sum(bool(one.raddr) and one.raddr.port == port for one in server.net_connections("tcp"))


def test_another_address_needs_tls_or_a_word_that_says_so(tmp_path: Path, cluster: Standing) -> None:
    assert "--insecure" in cluster.refused(2, "ui", "--host", "0.0.0.0")
    assert "go together" in cluster.refused(2, "ui", "--tls-cert", str(tmp_path / "cert"))
    assert "--link" in cluster.refused(2, "ui")


def test_a_run_shows_its_page_and_ends_with_it() -> None:
    done = squall("run", "tests/process/ui_topology.py:shown", "--ui", "--for", "2s", "--quiet", "--json",
                  "--drain-secs", "5", "--set", "on_error=fail", "--set", "max_attempts=2")
    assert "web page: http://127.0.0.1:" in done.stderr
    assert json.loads(done.stdout)["topology"] == "ui_topology"
