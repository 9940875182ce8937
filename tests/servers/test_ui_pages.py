"""The web page in a real browser: what each page shows, each button, and what comes of hostile names."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.process.standing_tools import Standing
from tests.process.ui_topology import EVIL
from tests.process.waiting import wait_for
from tests.servers.ui_tools import LAPTOP, PATIENCE_MS, PHONE, chromium_started, cluster_with_page, page_at, shot

TABS = ("flow", "components", "workers", "errors", "letters", "events", "logs", "traces")
expect.set_options(timeout=PATIENCE_MS)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standing]:
    with cluster_with_page() as made:
        wait_for("the dead letter", lambda: made.described("words")["dead_letters"] == 1)
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with chromium_started() as browser:
        yield browser


def test_the_cluster_shows_what_runs_and_is_live(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster) as page:
        row = page.locator("tr", has=page.get_by_role("link", name="words")).first
        expect(row).to_contain_text("ACTIVE")
        for role in ("keeper", "nimbus", "supervisor", "worker", "ui"):
            expect(page.get_by_role("cell", name=role, exact=True).first).to_be_visible()
        expect(page.get_by_text("Nothing has died.")).to_be_visible()
        before = row.inner_text()
        expect(row).not_to_have_text(before)
        shot(page, "cluster-laptop")
        page.get_by_role("link", name="words").first.click()
        expect(page.locator("h1")).to_have_text("words")


def test_the_topology_names_the_slow_bolt_and_the_poisoned_record(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words") as page:
        hint = page.locator(".sq-alert", has_text="given up")
        expect(hint).to_contain_text(f"Bottleneck: {EVIL} works")
        expect(hint).to_contain_text("1 message was given up")
        expect(page.locator(".nicegui-echart")).to_have_count(4)
        shot(page, "topology-laptop")
        page.get_by_role("tab", name="Errors").click()
        expect(page.get_by_text("ui_topology.py, line")).to_be_visible()
        page.get_by_role("tab", name="Dead letters").click()
        expect(page.get_by_text("value 7")).to_be_visible()
        expect(page.get_by_text("cannot take").first).to_contain_text(EVIL)
        shot(page, "dead-letters")


@pytest.mark.parametrize("name", ["laptop", "phone", "dark"])
def test_no_page_is_wider_than_its_screen_and_none_is_empty(
    chromium: Browser, cluster: Standing, name: str
) -> None:
    context = {**(PHONE if name == "phone" else LAPTOP), "color_scheme": "dark" if name == "dark" else "light"}
    with page_at(chromium, cluster, **context) as page:
        base = page.url.rstrip("/")
        tabs = TABS[:1] if name == "dark" else TABS
        for path in ("/", *(f"/topology/words?tab={tab}" for tab in tabs), "/topology/words/component/picky"):
            page.goto(base + path)
            expect(page.get_by_text("live", exact=True)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, path
            assert len(page.locator(".sq-page").first.inner_text()) > 100, path
            shot(page, f"{path.strip('/').replace('/', '-').replace('?tab=', '-') or 'cluster'}-{name}")
        assert ("body--dark" in (page.locator("body").get_attribute("class") or "")) == (name == "dark")


def test_a_component_shows_streams_and_errors_with_control_characters_made_plain(
    chromium: Browser, cluster: Standing
) -> None:
    with page_at(chromium, cluster, "/topology/words/component/picky") as page:
        expect(page.get_by_role("link", name="source")).to_be_visible()
        expect(page.get_by_role("link", name=EVIL)).to_be_visible()
        expect(page.get_by_text("cannot take").first).to_contain_text("\\x1b[31m\\u202e")
        tasks = page.locator("section", has=page.get_by_role("heading", name="Tasks"))
        expect(tasks.locator("tbody tr")).to_have_count(2)
        page.get_by_role("button", name="Show for a minute").click()
        expect(page.get_by_role("cell", name="('value").first).to_be_visible()
        page.get_by_role("link", name=EVIL).click()
        expect(page.locator("h1")).to_have_text(EVIL)
        assert page.locator("img").count() == 0


def test_logs_are_searched(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words?tab=logs") as page:
        box = page.get_by_label("Text to search")
        box.fill("seven is <img")
        box.press("Enter")
        expect(page.get_by_label("Lines")).to_contain_text(f"seven is {EVIL}")
        box.fill("no such line")
        box.press("Enter")
        expect(page.get_by_text("No line has this text.")).to_be_visible()


def test_messages_are_followed_and_drawn(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words?tab=traces") as page:
        page.get_by_role("button", name="Follow").click()
        expect(page.get_by_role("status").filter(has_text="messages seen")).to_be_visible()
        expect(page.get_by_label("Hops of attempt 1").locator("canvas")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Perfetto file").click()
        assert download.value.suggested_filename == "trace.json"


def test_a_profile_is_drawn_and_linked(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words?tab=workers") as page:
        page.get_by_role("button", name="Draw").click()
        drawn = page.get_by_role("link", name="node-1:6700, 10 s")
        expect(drawn).to_be_visible()
        assert "<svg" in page.request.get(page.url.partition("/topology")[0] + str(drawn.get_attribute("href"))).text()


def test_a_hidden_page_stops_asking_until_it_is_seen_again(chromium: Browser, cluster: Standing) -> None:
    def passes(secs: float) -> None:
        end = cluster.described("words")["uptime_secs"] + secs
        wait_for("time to pass", lambda: cluster.described("words")["uptime_secs"] > end)

    hide = """hidden => {Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'))}"""
    with page_at(chromium, cluster, "/topology/words") as page:
        about = page.get_by_text("up for")
        expect(about).to_be_visible()
        page.evaluate(hide, True)
        passes(5)
        before = about.inner_text()
        passes(5)
        assert about.inner_text() == before
        page.evaluate(hide, False)
        expect(about).not_to_have_text(before)


def test_the_theme_is_kept(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster) as page:
        page.get_by_label("Colours: auto").click()
        page.get_by_label("Colours: light").click()
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))
        page.wait_for_function("document.cookie.includes('squall-theme=dark')")  # comes after what is seen
        page.reload()
        expect(page.get_by_label("Colours: dark")).to_be_visible()
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))


def test_the_focus_stays_on_a_link_whose_table_changes(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster) as page:
        row = page.locator("tr", has=page.get_by_role("link", name="words")).first
        row.get_by_role("link").focus()
        for _ in range(2):
            expect(row).not_to_have_text(row.inner_text())
        assert page.evaluate("document.activeElement.innerText") == "words"
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("words")


def test_the_page_is_used_by_keys(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words") as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText"))
        assert {"Squall", "Activate", "Kill", "Flow", "Smaller", "Graph; scroll it"} <= {
            str(text).rpartition("\n")[2] for text in reached
        }


def test_a_page_of_a_topology_that_is_not_there_says_so(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/nobody") as page:
        expect(page.get_by_text("There is no topology 'nobody'")).to_be_visible()


# ---- orders, which change the topology: last ----


def ask(page: Page, button: str, word: str) -> None:
    """Press a button, and confirm."""
    page.get_by_role("toolbar").get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=word, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_order_waits_for_a_confirmation_and_a_wrong_one_says_what_is_wrong(
    chromium: Browser, cluster: Standing
) -> None:
    with page_at(chromium, cluster, "/topology/words") as page:
        page.get_by_role("button", name="Deactivate").click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert cluster.described("words")["status"] == "ACTIVE"
        page.get_by_role("toolbar").get_by_role("button", name="Inject").click()
        expect(page.get_by_text("kill worker count[0] at 3s")).to_be_visible()
        page.get_by_label("Fault").fill("nonsense words")
        page.get_by_role("dialog").get_by_role("button", name="Inject").click()
        expect(page.get_by_role("alert").filter(has_text="nonsense")).to_be_visible()


def test_activate_deactivate_inject_and_heal(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words") as page:
        ask(page, "Deactivate", "Deactivate")
        expect(page.locator(".sq-chip", has_text="INACTIVE")).to_be_visible()
        ask(page, "Activate", "Activate")
        expect(page.locator(".sq-chip", has_text="INACTIVE")).to_have_count(0)
        page.get_by_role("toolbar").get_by_role("button", name="Inject").click()
        page.get_by_label("Fault").fill("slow picky ms=5 for 300s")
        page.get_by_role("dialog").get_by_role("button", name="Inject").click()
        expect(page.get_by_text("Broken on purpose: slow")).to_be_visible()
        ask(page, "Heal", "Heal")
        expect(page.get_by_text("Broken on purpose: slow")).to_have_count(0)


def test_a_dead_letter_is_replayed(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words?tab=letters") as page:
        page.get_by_role("button", name="Replay message 7").click()
        expect(page.get_by_text("Given back to its spout")).to_be_visible()
        # It fails again, and is given up again.
        wait_for("the second burial", lambda: cluster.described("words")["dead_letters"] == 2)
        expect(page.get_by_role("button", name="Replay message 7")).to_be_visible()


def test_all_dead_letters_are_replayed(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words?tab=letters") as page:
        before = cluster.described("words")["replayed"]
        page.get_by_role("button", name="Replay all").click()
        page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
        wait_for("the replay", lambda: cluster.described("words")["replayed"] > before)


def test_rebalance_and_reset(chromium: Browser, cluster: Standing) -> None:
    with page_at(chromium, cluster, "/topology/words") as page:
        ask(page, "Reset", "Reset")
        page.get_by_role("toolbar").get_by_role("button", name="Rebalance").click()
        page.get_by_role("dialog").get_by_label("Workers", exact=True).fill("1")
        page.get_by_role("dialog").get_by_role("button", name="Rebalance").click()
        expect(page.get_by_text("1 of 1 workers ready")).to_be_visible()


def test_200_components_are_drawn_apart_and_found_by_name(chromium: Browser, cluster: Standing) -> None:
    cluster.ok("submit", "tests/process/wide_topology.py:wide", "--name", "wide", "--workers", "1")
    with page_at(chromium, cluster, "/topology/wide") as page:
        expect(page.get_by_text("200 components")).to_be_visible()
        expect(page.locator(".nicegui-echart canvas").first).to_be_visible()
        shot(page, "wide")
        page.get_by_label("Find components in the graph").fill("step_3_1")
        shot(page, "wide-found")
        page.get_by_role("tab", name="Components").click()
        page.get_by_label("Filter rows").fill("step_9_19")
        expect(page.get_by_role("link", name="step_9_19_of_the_way")).to_be_visible()
        expect(page.get_by_role("link", name="step_9_18_of_the_way")).to_have_count(0)
        ask(page, "Kill", "Kill")
        expect(page.get_by_role("alert").filter(has_text="there is no topology 'wide'")).to_be_visible()
