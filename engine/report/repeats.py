"""Tells equal errors of a component at the first, second, fourth, eighth ... time, with a count: a wrong line fails
each of a million tuples. Pure. Thread: any, with the lock of the interpreter."""

from __future__ import annotations

_KNOWN = 1000
"""Different errors that are counted; then counting begins anew."""


class Repeats:
    """The errors that one process has told."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def line(self, component: str, task: int, text: str) -> str | None:
        """The line that tells of an error; None if it need not be told again yet."""
        if len(self._counts) > _KNOWN:
            self._counts.clear()
        self._counts[component, text] = count = self._counts.get((component, text), 0) + 1
        if count & (count - 1):
            return None
        return f"error reported by {component}[{task}]: {text}{f' ({count:,} times)' if count > 1 else ''}"
