"""A Rich console for foreign text.

Guarantees: every string printed, also as a cell or a title, is shown literally, on one line: markup and emoji codes are
not interpreted, control characters are made visible.

Relies on: Rich making a text of every string by `Console.render_str`.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from squall.engine.foreign.plain_text import plain
from squall.ipc.private import naming


class PlainConsole(Console):
    """A console; `width` is used if the window's width is unknown."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=not stderr)
        if width is not None and not self.is_terminal:
            self.width = width

    def print(self, *objects: Any, **options: Any) -> None:
        with naming("stderr" if self.stderr else "stdout"):
            super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        options.update(emoji=False, markup=False, highlight=False)
        return super().render_str(plain(text, keep="\t"), **options)
