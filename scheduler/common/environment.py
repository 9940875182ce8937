"""What a topology's submitter gave to its workers: variables, the working directory, the import path, logging.

Guarantees
    * Values are in one file per topology, which only its owner can read; no message but the submission, no record and
      no log holds them.
    * A worker either has them all, or does not start, and says why.
    * Users' modules are behind the standard library and before installed packages, in launcher and workers alike: a
      user's file with the name of a standard module (`queue.py`) does not replace that module.
    * A worker begins as a fresh interpreter does, without handlers of Squall; so `logging.basicConfig` in a module, in
      `open` or in `prepare` works.
    * The levels of loggers that the submitting program has set, and the format of its root handler on stdout or stderr,
      hold in every worker too; handlers stay behind, and what went to them is in the worker's log. `log_level` and
      `log_format`, if they are given, win over the program.
    * Records that no handler takes are not lost: they go to stderr, with time, level and logger.

Relies on: the run directory, which is closed to others. Process: Nimbus writes, workers read. Thread: main, before
others log.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from squall.engine.api.config import Config
from squall.engine.errors import ClusterError
from squall.ipc.private import make_directory, replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import TopologyRecord

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_mistakes(variables: Mapping[str, str]) -> list[str]:
    """What is wrong with these variables; never quotes a value."""
    mistakes = []
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            mistakes.append(f"variable name {name!r:.80} is not allowed: letters, digits and _, not a digit first")
        if "\0" in value:
            mistakes.append(f"the value of variable {name!r:.80} has a NUL")
    return mistakes


def keep_environment(run_dir: RunDir, topology_id: str, variables: Mapping[str, str]) -> None:
    """Write the variables of a topology to disk. ClusterError if they cannot be."""
    path = run_dir.environment(topology_id)
    try:
        make_directory(path.parent)
        replace_file(path, msgspec.json.encode(variables), sync=True)
    except OSError as error:
        raise ClusterError(f"cannot keep the variables of {topology_id} in {path}: {error.strerror}") from None


def forget_environment(run_dir: RunDir, topology_id: str) -> None:
    run_dir.environment(topology_id).unlink(missing_ok=True)


def tidy_environments(run_dir: RunDir, ids: Collection[str]) -> None:
    """Remove the variables of all topologies but these."""
    kept = {run_dir.environment(topology_id) for topology_id in ids}
    folder = run_dir.environments
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        if path not in kept:
            path.unlink(missing_ok=True)


def enter_surroundings(run_dir: RunDir, record: TopologyRecord) -> None:
    """Take on what the submitter gave, in a worker, before its code is loaded. ClusterError if that is impossible."""
    if record.cwd:
        try:
            os.chdir(record.cwd)
        except OSError as error:
            raise ClusterError(
                f"cannot enter the working directory of {record.name}, {record.cwd}: {error.strerror}; "
                f"make it, or submit the topology again from another one"
            ) from None
    os.environ.update(environment_of(run_dir, record))


def environment_of(run_dir: RunDir, record: TopologyRecord) -> dict[str, str]:
    """The variables of a topology. ClusterError if they cannot be read."""
    if not record.env_names:
        return {}
    path = run_dir.environment(record.id)
    try:
        variables = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise ClusterError(f"cannot read the variables of {record.name} in {path}: {why}; submit it again") from None
    missing = sorted({*record.env_names} - {*variables})
    if missing:
        raise ClusterError(f"{path} lacks the variables {', '.join(missing)} of {record.name}; submit it again")
    return variables


def extend_import_path(entries: Iterable[str]) -> None:
    """Add the entries that are missing, in their order. Thread: main."""
    new = [entry for entry in dict.fromkeys(entries) if entry not in sys.path]
    if new:
        roots = _standard_folders()
        places = (place for place, entry in enumerate(sys.path, 1) if _is_standard(entry, roots))
        at = max(places, default=len(sys.path))
        sys.path[at:at] = new


def _standard_folders() -> set[str]:
    """The folders of the standard library. `sysconfig` knows them, too, but reads the interpreter's whole build
    configuration first: 2 ms, in each worker that starts."""
    folder = os.path.dirname(os.__file__)
    return {folder, os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(folder))}


def _is_standard(entry: str, roots: set[str]) -> bool:
    """Whether it is a folder (or archive) of the standard library; installed packages have a folder below it."""
    path = Path(entry)
    return entry in roots or path.name == "lib-dynload" or (path.suffix == ".zip" and str(path.parent) in {
        str(Path(root).parent) for root in roots
    })


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


def logging_set_up() -> UserLogging:
    """What this program has set up."""
    loggers = [("", logging.root), *logging.root.manager.loggerDict.items()]
    levels = {
        name: logger.level for name, logger in loggers
        if isinstance(logger, logging.Logger) and logger.level and name.partition(".")[0] != "squall"
    }
    formatters = [one.formatter for one in logging.root.handlers if type(one) is logging.StreamHandler]
    formats = (formatter._fmt for formatter in formatters if formatter is not None)
    return UserLogging(levels, next(formats, None))


def reset_logging() -> None:
    """Undo what this process has set up for itself, as a daemon."""
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)


def apply_logging_settings(config: Config, **always: str) -> None:
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
