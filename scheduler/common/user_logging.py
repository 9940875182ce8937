"""Logging by users' code: the same in a worker as in the program that submitted the topology.

Guarantees
    * A worker begins as a fresh interpreter does, without handlers of Squall; so `logging.basicConfig` in a module, in
      `open` or in `prepare` works.
    * What the submitting program has set up before (levels, and handlers on stdout and stderr with their formats) holds
      in every worker too; other handlers stay behind, and what went to them is in the worker's log.
    * Records that no handler takes are not lost: they go to stderr, with time, level and logger.
    * `log_level` and `log_format`, if they are given, win over the program.

Thread: main, before others log.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from squall.engine.api.config import Config

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
JSON = "json"
_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


@dataclass(frozen=True)
class _Handler:
    """A handler on stdout or stderr."""

    stream: str
    level: int
    formatter: logging.Formatter | None


@dataclass(frozen=True)
class _Logger:
    level: int
    propagate: bool
    disabled: bool
    handlers: list[_Handler]


@dataclass(frozen=True)
class UserLogging:
    """What a program has set up, by logger; "" is the root. Picklable."""

    loggers: dict[str, _Logger] = field(default_factory=dict)

    def apply(self) -> None:
        for name, given in self.loggers.items():
            logger = logging.getLogger(name or None)
            logger.setLevel(given.level)
            logger.propagate, logger.disabled = given.propagate, given.disabled
            logger.handlers[:] = [_made(handler) for handler in given.handlers]


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
    return UserLogging({
        name: _Logger(logger.level, logger.propagate, logger.disabled, _kept(logger.handlers))
        for name, logger in _loggers()
        if name.partition(".")[0] != "squall" and _is_set_up(logger)
    })


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
        for handler in (last_resort, *(one for _, logger in _loggers() for one in logger.handlers if _stream_of(one))):
            handler.setFormatter(JsonFormatter(**always))


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    yield "", logging.root
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            yield name, logger


def _is_set_up(logger: logging.Logger) -> bool:
    return bool(logger.level or logger.handlers or logger.disabled or not logger.propagate)


def _stream_of(handler: logging.Handler) -> str:
    """The name of the standard stream that a handler writes to; "" for any other handler."""
    if type(handler) is not logging.StreamHandler:
        return ""
    names = {"stdout": (sys.stdout, sys.__stdout__), "stderr": (sys.stderr, sys.__stderr__)}
    return next((name for name, streams in names.items() if handler.stream in streams), "")


def _kept(handlers: list[logging.Handler]) -> list[_Handler]:
    return [_Handler(stream, one.level, _portable(one.formatter)) for one in handlers if (stream := _stream_of(one))]


def _portable(formatter: logging.Formatter | None) -> logging.Formatter | None:
    """The formatter, or a plain one if it cannot be pickled."""
    try:
        cloudpickle.dumps(formatter)
    except Exception:  # users' code; what it would have added to a line is all that is lost
        return logging.Formatter(TEXT)
    return formatter


def _made(given: _Handler) -> logging.Handler:
    handler = logging.StreamHandler(sys.stdout if given.stream == "stdout" else sys.stderr)
    handler.setLevel(given.level)
    handler.setFormatter(given.formatter)
    return handler
