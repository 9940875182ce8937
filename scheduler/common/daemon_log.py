"""The log of a daemon: lines on its stderr, whatever texts they quote.

Guarantees: a message is one line; a traceback keeps its lines. Neither holds a control character.
"""

from __future__ import annotations

import logging

from squall.engine.foreign.plain_text import plain, plain_lines


class PlainFormatter(logging.Formatter):
    """Makes messages plain, because they quote users' code."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        record.message = plain(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))


def log_to_stderr() -> None:
    """Log to stderr. Called once, by the daemon's main."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
