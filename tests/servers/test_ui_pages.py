"""The web page in a real browser: what each page shows, each button, and what comes of hostile names; who is let in,
what comes of the deaths of its process and of Nimbus, and hostile clients."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.process.cli import start
from tests.process.ports import free_ports
from tests.process.standing_tools import Standing
from tests.process.ui_topology import EVIL
from tests.process.waiting import wait_for
from tests.servers.ui_tools import LAPTOP, PHONE, address, page_at, page_process

TABS = ("flow", "components", "workers", "errors", "letters", "events", "logs", "traces")
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("browser")]  # one cluster for all


def shows(page: Page, text: str) -> None:
    """It does, or will."""
    expect(page.get_by_text(text)).to_be_visible()


def press(place: Page | Locator, name: str, role: Any = "button") -> None:
    place.get_by_role(role, name=name).click()


def is_live(page: Page) -> None:
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_the_cluster_shows_what_runs_and_is_live_and_the_focus_stays_on_a_link(
    chromium: Browser, page_cluster: Standing
) -> None:
    with page_at(chromium, page_cluster) as page:
        row = page.locator("tr", has=page.get_by_role("link", name="words")).first
        expect(row).to_contain_text("ACTIVE")
        for role in ("keeper", "nimbus", "supervisor", "worker", "ui"):
            expect(page.get_by_role("cell", name=role, exact=True).first).to_be_visible()
        deaths = len(page_cluster.json("status")["daemon_deaths"])
        expect(page.get_by_role("cell", name="killed by SIGKILL")).to_have_count(deaths)
        row.get_by_role("link").focus()
        for _ in range(2):
            expect(row).not_to_have_text(row.inner_text())
        assert page.evaluate("document.activeElement.innerText") == "words"
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("words")


def test_the_topology_is_used_by_keys_and_names_the_slow_bolt_and_the_poisoned_record(
    chromium: Browser, page_cluster: Standing
) -> None:
    with page_at(chromium, page_cluster, "/topology/words") as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText"))
        assert {"Squall", "Activate", "Kill", "Flow", "Smaller", "Graph; scroll it"} <= {
            str(text).rpartition("\n")[2] for text in reached
        }
        hint = page.locator(".sq-alert", has_text="given up")
        expect(hint).to_contain_text(f"Bottleneck: {EVIL} works")
        expect(hint).to_contain_text("1 message was given up")
        expect(page.locator(".nicegui-echart")).to_have_count(4)
        press(page, "Errors", "tab")
        shows(page, "ui_topology.py, line")
        press(page, "Dead letters", "tab")
        shows(page, "value 7")
        expect(page.get_by_role("cell", name="cannot take")).to_contain_text(f"{EVIL} \\x1b[31m\\u202e")


@pytest.mark.parametrize(("screen", "tabs", "colours"), [(LAPTOP, TABS[:1], "dark"), (PHONE, TABS, "light")])
def test_no_page_is_wider_than_its_screen_and_none_is_empty(
    chromium: Browser, page_cluster: Standing, screen: dict[str, Any], tabs: tuple[str, ...], colours: str
) -> None:
    with page_at(chromium, page_cluster, **screen, color_scheme=colours) as page:
        base = page.url.rstrip("/")
        for path in ("/", *(f"/topology/words?tab={tab}" for tab in tabs), "/topology/words/component/picky"):
            page.goto(base + path)
            is_live(page)
            assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, path
            assert len(page.locator(".sq-page").first.inner_text()) > 100, path
        assert ("body--dark" in (page.locator("body").get_attribute("class") or "")) == (colours == "dark")


def test_a_phone_shows_troubles_before_rates_figures_before_buttons_and_the_bottleneck(
    chromium: Browser, page_cluster: Standing
) -> None:
    with page_at(chromium, page_cluster, **PHONE) as page:
        for name in ("dead letters", "restarts"):
            expect(page.get_by_role("columnheader", name=name)).to_be_in_viewport(ratio=1)
        page.goto(f"{page.url}topology/words")
        page.wait_for_function("document.querySelector('.sq-scroll').scrollLeft > 0")
        top = "document.querySelector('.sq-{}').offsetTop".format
        assert page.evaluate(f"{top('tiles')} < {top('orders')}")


def test_a_component_shows_streams_and_errors_with_control_characters_made_plain(
    chromium: Browser, page_cluster: Standing
) -> None:
    with page_at(chromium, page_cluster, "/topology/words/component/picky") as page:
        expect(page.get_by_role("link", name="source")).to_be_visible()
        expect(page.get_by_text("cannot take").first).to_contain_text("\\x1b[31m\\u202e")
        tasks = page.locator("section", has=page.get_by_role("heading", name="Tasks"))
        expect(tasks.locator("tbody tr")).to_have_count(2)
        press(page, "Show for a minute")
        expect(page.get_by_role("cell", name="('value").first).to_be_visible()
        press(page, EVIL, "link")
        expect(page.locator("h1")).to_have_text(EVIL)
        assert page.locator("img").count() == 0


def test_logs_are_searched(chromium: Browser, page_cluster: Standing) -> None:
    with page_at(chromium, page_cluster, "/topology/words?tab=logs") as page:
        box = page.get_by_label("Text to search")
        box.fill("seven is <img")
        box.press("Enter")
        expect(page.get_by_label("Lines")).to_contain_text(f"seven is {EVIL}")
        box.fill("no such line")
        box.press("Enter")
        shows(page, "No line has this text.")


def test_messages_are_followed_and_drawn(chromium: Browser, page_cluster: Standing) -> None:
    with page_at(chromium, page_cluster, "/topology/words?tab=traces") as page:
        press(page, "Follow")
        expect(page.get_by_role("status").filter(has_text="messages seen")).to_be_visible()
        expect(page.get_by_label("Hops of attempt 1").locator("canvas")).to_be_visible()
        with page.expect_download() as download:
            press(page, "Perfetto file")
        assert download.value.suggested_filename == "trace.json"


def test_a_profile_is_drawn_and_linked_while_the_page_stays_connected(
    chromium: Browser, page_cluster: Standing
) -> None:
    with page_at(chromium, page_cluster, "/topology/words?tab=workers") as page:
        anew: list[str] = []
        page.on("websocket", lambda made: anew.append(made.url))
        press(page, "Draw")
        drawn = page.get_by_role("link", name="node-1:6700, 10 s")
        expect(drawn).to_be_visible()
        assert "<svg" in page.request.get(page.url.partition("/topology")[0] + str(drawn.get_attribute("href"))).text()
        assert anew == []


def test_a_hidden_page_stops_asking_until_it_is_seen_again(chromium: Browser, page_cluster: Standing) -> None:
    def passes(secs: float) -> None:
        end = page_cluster.described("words").uptime_secs + secs
        wait_for("time to pass", lambda: page_cluster.described("words").uptime_secs > end)

    hide = """hidden => {Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'))}"""
    with page_at(chromium, page_cluster, "/topology/words") as page:
        about = page.get_by_text("up for")
        expect(about).to_be_visible()
        page.evaluate(hide, True)
        passes(2)
        before = about.inner_text()
        passes(3)
        assert about.inner_text() == before
        page.evaluate(hide, False)
        expect(about).not_to_have_text(before)


def test_a_topology_that_is_not_there_is_told_and_the_theme_is_kept(chromium: Browser, page_cluster: Standing) -> None:
    with page_at(chromium, page_cluster, "/topology/nobody") as page:
        shows(page, "There is no topology 'nobody'")
        page.get_by_label("Colours: auto").click()
        page.get_by_label("Colours: light").click()
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))
        page.wait_for_function("document.cookie.includes('squall-theme=dark')")  # comes after what is seen
        page.reload()
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))


# ---- orders, which change the topology: last ----


def ask(page: Page, button: str, word: str) -> None:
    """Press a button, and confirm."""
    page.get_by_role("toolbar").get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=word, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_orders_wait_for_a_confirmation_and_wrong_ones_say_why(chromium: Browser, page_cluster: Standing) -> None:
    with page_at(chromium, page_cluster, "/topology/words") as page:
        inactive, slow = page.locator(".sq-chip", has_text="INACTIVE"), page.get_by_text("Broken on purpose: slow")
        press(page, "Deactivate")
        press(page, "Cancel")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert page_cluster.described("words").status == "ACTIVE"
        press(page.get_by_role("toolbar"), "Inject")
        shows(page, "kill worker count[0] at 3s")
        inject = page.get_by_role("dialog").get_by_role("button", name="Inject")
        page.get_by_label("Fault").fill("nonsense words")
        inject.click()
        expect(page.get_by_role("alert").filter(has_text="nonsense")).to_be_visible()
        page.get_by_label("Fault").fill("slow picky ms=5 for 300s")
        inject.click()
        expect(slow).to_be_visible()
        ask(page, "Heal", "Heal")
        expect(slow).to_have_count(0)
        ask(page, "Deactivate", "Deactivate")
        expect(inactive).to_be_visible()
        ask(page, "Activate", "Activate")
        expect(inactive).to_have_count(0)


def test_dead_letters_are_replayed_one_by_one_and_all(chromium: Browser, page_cluster: Standing) -> None:
    def figure(name: str) -> int:
        return int(getattr(page_cluster.described("words"), name))

    with page_at(chromium, page_cluster, "/topology/words?tab=letters") as page:
        one = page.get_by_role("button", name="Replay message 7")
        one.click()
        shows(page, "Given back to its spout")
        # It fails again, and is given up again.
        wait_for("the second burial", lambda: figure("dead_letters") == 2)
        expect(one).to_be_visible()
        before = figure("replayed")
        press(page, "Replay all")
        page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
        wait_for("the replay", lambda: figure("replayed") > before)


def test_rebalance_and_reset(chromium: Browser, page_cluster: Standing) -> None:
    with page_at(chromium, page_cluster, "/topology/words") as page:
        ask(page, "Reset", "Reset")
        press(page.get_by_role("toolbar"), "Rebalance")
        page.get_by_role("dialog").get_by_label("Workers", exact=True).fill("1")
        press(page.get_by_role("dialog"), "Rebalance")
        shows(page, "1 of 1 workers ready")


def test_200_components_are_drawn_apart_and_found_by_name(chromium: Browser, page_cluster: Standing) -> None:
    page_cluster.ok("submit", "tests/process/wide_topology.py:wide", "--name", "wide", "--workers", "1")
    with page_at(chromium, page_cluster, "/topology/wide") as page:
        shows(page, "200 components")
        expect(page.locator(".nicegui-echart canvas").first).to_be_visible()
        page.get_by_label("Find components in the graph").fill("step_3_1")
        press(page, "Components", "tab")
        page.get_by_label("Filter rows").fill("step_9_19")
        expect(page.get_by_role("link", name="step_9_19_of_the_way")).to_be_visible()
        expect(page.get_by_role("link", name="step_9_18_of_the_way")).to_have_count(0)
        ask(page, "Kill", "Kill")
        expect(page.get_by_role("alert").filter(has_text="there is no topology 'wide'")).to_be_visible()


# ---- the server ----


def acked(page_cluster: Standing) -> int:
    return page_cluster.described("words").acked


def goes_on(page_cluster: Standing) -> None:
    before = acked(page_cluster)
    wait_for("more acks", lambda: acked(page_cluster) > before + 20)


def test_a_page_reconnects_after_its_server_and_nimbus_were_killed(chromium: Browser, page_cluster: Standing) -> None:
    deaths = len(page_cluster.json("status")["daemon_deaths"])
    with page_at(chromium, page_cluster, "/topology/words") as page:
        url = page.url
        is_live(page)
        page.evaluate("window.before = true")
        with page_cluster.keeper_held():
            page_process(page_cluster).kill()
            expect(page.locator("#sq-stale")).to_contain_text("has not answered for")
            expect(page.locator("#sq-stale")).to_be_visible()
        page_process(page_cluster)
        page.wait_for_function("!window.before", timeout=120_000)
        expect(page.locator("#sq-stale")).to_be_hidden()
        is_live(page)
        assert page.url == url
        with page_cluster.keeper_held():
            page_cluster.nimbus().kill()
            shows(page, "stale: as of")
        is_live(page)
        page.goto(address(page_cluster))
        expect(page.get_by_role("cell", name="killed by SIGKILL")).to_have_count(deaths + 2)


def test_read_only_has_no_buttons_and_guesses_nothing_before_it_sees_the_cluster(
    chromium: Browser, page_cluster: Standing
) -> None:
    page_of_cluster = page_process(page_cluster)
    with page_cluster.keeper_held():
        page_of_cluster.kill()
        wait_for("its end", lambda: page_of_cluster.status() == psutil.STATUS_ZOMBIE)
        [port] = free_ports(1)
        nimbus = page_cluster.nimbus()
        nimbus.suspend()
        own = start("ui", "--read-only", "--port", str(port), "--dir", page_cluster.path)
        try:
            assert own.stdout is not None
            assert own.stdout.readline().startswith(f"http://127.0.0.1:{port}/enter?code=")
            with page_at(chromium, page_cluster, "/topology/words") as page:
                shows(page, "stale: nothing seen yet")
                assert "no topology" not in page.inner_text(".sq-page")
                nimbus.resume()
                shows(page, "read-only")
                is_live(page)
                assert page.get_by_role("button", name="Kill").count() == 0
        finally:
            nimbus.resume()
            own.terminate()
            own.communicate(timeout=60)
        assert own.returncode == 0


def test_a_hostile_client_changes_nothing_and_slows_no_topology(page_cluster: Standing) -> None:
    where = urlsplit(address(page_cluster))
    at = (where.hostname or "", where.port or 0)
    server = page_process(page_cluster)
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
        goes_on(page_cluster)
        assert page_cluster.described("words").status == "ACTIVE"
    finally:
        for one in opened:
            one.close()
    wait_for("an answer to others", lambda: _is_healthy(page_cluster))
    assert page_process(page_cluster) == server
    assert server.memory_info().rss - before < 64 << 20


def _is_healthy(page_cluster: Standing) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address(page_cluster)}/healthz", timeout=10):
        return True
    return False


def test_a_slow_reader_is_cut_off(page_cluster: Standing) -> None:
    where = urlsplit(address(page_cluster))
    token = page_cluster.run_dir.ui_token.read_text().strip()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((where.hostname, where.port))
        ask = f"GET /topology/words HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        server = page_process(page_cluster)
        slow.sendall(ask.encode() * 50)
        goes_on(page_cluster)
        wait_for("its end", lambda: _connections(server, slow.getsockname()[1]) == 0)
    assert server.is_running()


def test_a_stranger_cannot_keep_a_connection_by_a_second_request(page_cluster: Standing) -> None:
    where = urlsplit(address(page_cluster))
    with socket.create_connection((where.hostname, where.port), timeout=60) as stranger:
        stranger.sendall(f"GET /healthz HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        while not stranger.recv(4096).endswith(b"ok\n"):
            pass
        stranger.sendall(b"G")
        wait_for("its end", lambda: _connections(page_process(page_cluster), stranger.getsockname()[1]) == 0)


def _connections(server: psutil.Process, port: int) -> int:
    return sum(bool(one.raddr) and one.raddr.port == port for one in server.net_connections("tcp"))


def test_another_address_needs_tls_or_a_word_that_says_so(page_cluster: Standing) -> None:
    assert "--insecure" in page_cluster.refused(2, "ui", "--host", "0.0.0.0")
    assert "go together" in page_cluster.refused(2, "ui", "--tls-cert", "cert")
    assert "--link" in page_cluster.refused(2, "ui")
