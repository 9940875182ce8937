"""Shows something again and again until Ctrl-C: a screen on a terminal, a short line each time elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click

from squall.cli.interrupts import Interrupts
from squall.cli.output import say
from squall.cli.screen import Block, cut_to_window, is_terminal, rendered
from squall.cli.standing import drop_stdout
from squall.cli.tables import Cell

_NEWS_SECS = 0.2
"""Between two looks for news, which are shown at once."""


class Look(NamedTuple):
    """Something at one moment."""

    blocks: Sequence[Block]
    line: str


Show = Callable[[Look], None]
Tell = Callable[[str], None]


def watch(look: Callable[[], Look | str], news: Callable[[], list[str]], interval_secs: float) -> None:
    """Show looks until one is a text, which tells why there is nothing more to see. Exit code 130 at Ctrl-C."""
    with Interrupts() as interrupts:
        try:
            with _shown() as (show_look, tell):
                _look_on(look, news, interval_secs, interrupts, show_look, tell)
        except BrokenPipeError:
            drop_stdout()
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)


def _look_on(
    look: Callable[[], Look | str], news: Callable[[], list[str]], interval_secs: float, interrupts: Interrupts,
    show_look: Show, tell: Tell,
) -> None:
    next_look = 0.0
    while not interrupts.count:
        for line in news():
            tell(line)
        if time.monotonic() >= next_look:
            seen = look()
            if isinstance(seen, str):
                tell(seen)
                return
            show_look(seen)
            next_look = time.monotonic() + interval_secs
        time.sleep(max(0.0, min(_NEWS_SECS, next_look - time.monotonic())))


@contextlib.contextmanager
def _shown() -> Iterator[tuple[Show, Tell]]:
    """Functions that show a look, and news above it."""
    if not is_terminal(sys.stdout):
        yield lambda seen: say(seen.line), say
        return
    from rich.live import Live

    from squall.cli.plain_console import PlainConsole

    console = PlainConsole()

    def show_look(seen: Look) -> None:
        # One line stays free for the cursor.
        width, height = console.width, console.height - 1
        live.update(rendered(cut_to_window(seen.blocks, width, height), width), refresh=True)

    def tell(line: str) -> None:
        console.print(rendered([Cell(f"{time.strftime('%H:%M:%S')} {line}", "yellow")], console.width), soft_wrap=False)

    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield show_look, tell
