"""What all pages have: header, theme, the tick that keeps them live, and small parts that they are made of.

Guarantees: a page asks once a second while it can be seen, and sends what has changed. A question that cannot be
answered is told on the page, which goes on asking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import run, ui

from squall.engine.errors import SquallError
from squall.engine.foreign.text import plain, plain_lines
from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.look import BODY, HEAD, HOT, PRIMARY

_STALE_SECS = 15.0
"""Looks at a large cluster may be some seconds apart."""
_THEMES: dict[str, tuple[bool | None, str, str]] = {
    "auto": (None, "brightness_auto", "light"), "light": (False, "light_mode", "dark"),
    "dark": (True, "dark_mode", "auto"),
}
"""Theme -> value, icon, and the one after it."""


class Shell:
    """One page of one visitor. A context manager: what is made inside is the page's content."""

    def __init__(self, api: ClusterApi, title: str, crumbs: Sequence[tuple[str, str]]) -> None:
        """`crumbs`: (text, address) of the pages on the way here; this one has no address."""
        self.api = api
        ui.page_title(f"{title} - Squall")
        ui.colors(primary=PRIMARY, negative=HOT)
        ui.add_head_html(HEAD)
        ui.add_body_html(BODY)
        with ui.header().classes("sq-head"):
            with ui.element("nav").classes("sq-crumbs").props('aria-label="Where you are"'):
                ui.link("Squall", "/").classes("sq-brand")
                for text, address in crumbs:
                    ui.label("/").classes("sq-soft").props("aria-hidden=true")
                    if address:
                        ui.link(text, address)
                    else:
                        ui.label(text).props("aria-current=page")
            self._age = ui.label("stale: nothing seen yet").classes("sq-soft sq-age sq-warn").props("role=status")
            if api.read_only:
                ui.label("read-only").classes("sq-soft")
            _theme_button()
        with ui.element("div").classes("sq-page"):
            self._trouble = ui.label().classes("sq-alert bad").props("role=alert")
            self.content = ui.element("div").classes("sq-page").style("padding:0")
        self._trouble.set_visibility(False)
        self.content.set_visibility(False)
        self._update: Callable[[], None] = lambda: None

    def __enter__(self) -> Shell:
        self.content.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.content.__exit__(*error)

    def live(self, update: Callable[[], None]) -> None:
        """Call `update` now, and once a second from now on."""
        self._update = update
        self.tick()
        timer = ui.timer(1.0, self.tick, immediate=False)

        def shown(event: Any) -> None:
            timer.active = bool(event.args)
            if timer.active:
                self.tick()

        ui.on("sq_shown", shown)

    def tick(self) -> None:
        """Bring the page up to date."""
        try:
            cluster = self.api.cluster()
            age, away = cluster.age_secs, cluster.away
            stale = age > _STALE_SECS or bool(away)
            self._age.set_text(f"stale: as of {age:.0f} s ago" if stale else "live")
            self._age.classes(add="sq-warn" if stale else "sq-good", remove="sq-good" if stale else "sq-warn")
            # Not before: of a cluster that was never seen, "No topology runs here" would be a guess.
            self.content.set_visibility(True)
            self._update()
            self._tell(f"What is shown is {age:.0f} s old: {away or 'looking takes long'}" if stale else "")
        except SquallError as error:
            self._tell(str(error))

    def _tell(self, text: str) -> None:
        self._trouble.set_text(plain(text))
        self._trouble.set_visibility(bool(text))


def _theme_button() -> None:
    request = ui.context.client.request
    name = (request.cookies if request is not None else {}).get("squall-theme", "auto")
    state = {"name": name if name in _THEMES else "auto"}
    dark = ui.dark_mode(_THEMES[state["name"]][0])

    def turn() -> None:
        state["name"] = _THEMES[state["name"]][2]
        dark.value = _THEMES[state["name"]][0]
        show()
        ui.run_javascript(f"document.cookie='squall-theme={state['name']};path=/;max-age=31536000;samesite=strict'")

    button = ui.button(on_click=turn, color=None).props("flat round dense").classes("sq-soft")

    def show() -> None:
        button.props(f'icon={_THEMES[state["name"]][1]} aria-label="Colours: {state["name"]}; press to change"')

    show()


def address_of(topology: str, component: str = "") -> str:
    """Where the page of a topology is, or of one of its components."""
    path = f"/topology/{quote(topology, safe='')}"
    return f"{path}/component/{quote(component, safe='')}" if component else path


def card(title: str, note: str = "") -> ui.element:
    """A box with a heading. A context manager."""
    box = ui.element("section").classes("sq-card")
    with box:
        heading(title)
        if note:
            ui.label(note).classes("sq-soft")
    return box


def heading(text: str, tag: str = "h2") -> None:
    with ui.element(tag):
        ui.label(text)


def small_button(label: str, icon: str, on_click: Callable[..., Any], tone: str = "") -> ui.button:
    """A button beside others; `tone`: "" or "bad"."""
    button = ui.button(label, icon=icon, on_click=on_click, color=None)
    return button.props("outline dense no-caps padding='3px 10px'").classes(f"sq-btn sq-{tone or 'link'}")


Figure = str | tuple[str, str]
"""As it is shown, and perhaps its tone: "bad" or "warn"."""


class Tiles:
    """Figures in a row, each with its unit below."""

    def __init__(self) -> None:
        self._box = ui.element("div").classes("sq-tiles")
        self._labels: dict[str, ui.label] = {}

    def show(self, figures: Mapping[str, Figure]) -> None:
        """Set the figures by their units."""
        for unit, figure in figures.items():
            if unit not in self._labels:
                with self._box, ui.element("div").classes("sq-tile"):
                    self._labels[unit] = ui.label()
                    ui.label(unit).classes("u")
            shown, tone = (figure, "") if isinstance(figure, str) else figure
            self._labels[unit].set_text(shown)
            self._labels[unit].classes(replace=f"v sq-{tone}" if tone else "v")


class Table(ui.element, component="live_table.js"):
    """A table that is sent again only when it has changed. Without rows it says why. Texts are shown as lines that do
    no harm."""

    def __init__(
        self, columns: Sequence[tuple[str, str, str]], empty: str, key: str = "key", rows_per_page: int = 0,
        filtered: bool = False, sort: str = "", on_pick: Callable[[Any], Any] | None = None,
    ) -> None:
        """`columns`: (key, title, kind); kinds: "" text, "link" to the row's `href`, "wrap", "chip" in the row's
        `colour`, "pick" and "replay" call `on_pick` with the row's key; for numbers "n" (with decimals: "n1" to "n3"),
        "b" bytes, "p" a share, "t" seconds, "at" a moment. `key`: what tells rows apart, by default their place.
        `sort`: the column to sort by, the most first."""
        super().__init__()
        self._names = [key, *(name for name, _, _ in columns), "colour", "why_no_payload"]
        self._rows: list[dict[str, Any]] = []
        self.props.update({
            "columns": columns, "rows": self._rows, "row-key": key, "empty": empty, "rows-per-page": rows_per_page,
            "filtered": filtered, "sort-by": sort or None, "descending": bool(sort),
        })
        if on_pick is not None:
            self.on("pick", on_pick)

    def show(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Show rows, which may have more than there are columns for."""
        shown = [
            {**{name: _cell(row.get(name)) for name in self._names}, "href": row.get("href"), "key": place}
            for place, row in enumerate(rows)
        ]
        if shown != self._rows:
            self._rows = self.props["rows"] = shown


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return text(value) if isinstance(value, str) else value


def text(value: object) -> str:
    """Foreign text as one line that does no harm."""
    return plain(value, limit=2000)


def lines(value: str) -> str:
    """Foreign text of several lines, such as a stack."""
    return plain_lines(value, limit=20_000)


def number(value: float | None, decimals: int = 0) -> str:
    return "–" if value is None else f"{value:,.{decimals}f}"


def alarm(count: int, tone: str) -> Figure:
    """A number that has this tone unless it is 0."""
    return number(count), tone * bool(count)


def clock(unix_secs: float) -> str:
    """A moment of the last day or so, by the clock of this machine."""
    return time.strftime("%d %b %H:%M:%S", time.localtime(unix_secs))


def duration(secs: float | None) -> str:
    if secs is None:
        return "–"
    mins, rest = divmod(round(secs), 60)
    hours, mins = divmod(mins, 60)
    days, hours = divmod(hours, 24)
    found = [f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (mins, "min"), (rest, "s")) if count]
    return " ".join(found[:2]) or "0 s"


async def order(what: Callable[[], Any], done: str) -> Any:
    """Carry out an order beside the event loop, and tell how it went. Return its answer, None if it was refused."""
    try:
        answer = await run.io_bound(what)
    except SquallError as error:
        ui.notify(plain(error), type="negative", multi_line=True, close_button="OK", timeout=10_000)
        return None
    ui.notify(done, type="positive")
    return answer
