"""Logging by users' code: the same in a worker as in the program that submitted the topology.

Guarantees
    * A worker begins as a fresh interpreter does, without handlers of Squall; so `logging.basicConfig` in a module, in
      `open` or in `prepare` works.
    * The levels of loggers that the submitting program has set, and the format of its root handler on stdout or stderr,
      hold in every worker too; handlers stay behind, and what went to them is in the worker's log.
    * Records that no handler takes are not lost: they go to stderr, with time, level and logger.
    * `log_level` and `log_format`, if they are given, win over the program.

Thread: main, before others log.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from squall.engine.api.config import Config

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
JSON = "json"
_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


@dataclass(frozen=True)
class UserLogging:
    """What a program has set up. Picklable."""

    levels: dict[str, int] = field(default_factory=dict)
    """By logger; "" is the root."""
    line_format: str | None = None
    """Of the root's handler on stdout or stderr; None if it has none."""

    def apply(self) -> None:
        for name, level in self.levels.items():
            logging.getLogger(name or None).setLevel(level)
        if self.line_format is not None:
            logging.basicConfig(format=self.line_format)


class JsonFormatter(logging.Formatter):
    """One JSON object per record and line: time, level, logger, message, what `extra` gave, the exception."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        document: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z", "level": record.levelname, "logger": record.name,
            "message": record.getMessage(), **self._always,
        }
        document |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        return json.dumps(document, default=repr)


def taken() -> UserLogging:
    """What this program has set up."""
    loggers = [("", logging.root), *logging.root.manager.loggerDict.items()]
    levels = {
        name: logger.level for name, logger in loggers
        if isinstance(logger, logging.Logger) and logger.level and name.partition(".")[0] != "squall"
    }
    formatters = [one.formatter for one in logging.root.handlers if type(one) is logging.StreamHandler]
    formats = (formatter._fmt for formatter in formatters if formatter is not None)
    return UserLogging(levels, next(formats, None))


def begin_anew() -> None:
    """Undo what this process has set up for itself, as a daemon."""
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)


def apply_settings(config: Config, **always: str) -> None:
    """Let the settings hold, after the program's own set-up. `always`: what each JSON line tells besides."""
    last_resort = logging.StreamHandler()
    last_resort.setFormatter(logging.Formatter(TEXT))
    # It takes what no other handler does; unlike a root handler, it leaves `basicConfig` its effect.
    logging.lastResort = last_resort
    if config.log_level is not None:
        logging.root.setLevel(config.log_level.upper())
    if config.log_format == JSON:
        for handler in (last_resort, *logging.root.handlers):
            handler.setFormatter(JsonFormatter(**always))
