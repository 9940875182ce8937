"""Reduces Spark's pages of error text to one line.

Guarantees a ClusterError with the Python exception of a task, Java's last cause, or the fate and last words of a dead
JVM; where data are read, a UsageError for what is wrong with them. No name of a Java class is shown, as users can do
nothing with it. Relies on the form of Spark 4's texts: if it has changed, the first line is shown, never nothing.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from squall.engine.errors import ClusterError, UsageError

#: Most characters of an error line, short enough to read: the traceback has the rest.
MAX_ERROR_CHARS = 400
#: Longest wait for the exit status of a JVM that closed its connection.
FATE_TIMEOUT_SECS = 20.0

_EXCEPTION_LINE = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?::\s.*|\s*)$")
#: Codes of the SQL standard, by their first two characters, that tell of the data and of what was asked for, not of the
#: machine: what is not supported (0A), values (21, 22, 23, 2B), names and syntax (42), limits (54), codecs (56), and
#: Spark's own of sources (KD).
_INPUT_STATE = re.compile(r"\bSQLSTATE: (?:0A|21|22|23|2B|42|54|56|KD)\w{3}\b")
#: Conditions from before Spark used these codes.
_INPUT_CONDITION = re.compile(r"\[_LEGACY_ERROR_TEMP")
#: What PySpark makes of Java's exceptions, by name, as each version has others: of analysis, options and values.
_INPUT_ERRORS = (
    "AnalysisException", "IllegalArgumentException", "ArithmeticException", "ArrayIndexOutOfBoundsException",
    "DateTimeException", "NumberFormatException", "SparkNoSuchElementException", "SparkUpgradeException",
    "UnsupportedOperationException",
)
_READ_FILE = re.compile(r"Encountered error while reading file (?:file:/*(?=/))?([^\n]*?)\.\s")
_CLASS = re.compile(r"^(?:\w+[.$])+(\w+?)(?:Exception|Error)(?:: |$)")
_CLASS_INSIDE = re.compile(r"(?<![\w./-])(?:org|com|java|javax|scala|py4j)\.(?:[\w$]+\.)+([\w$]+)")
_CODES = re.compile(r"^\[[A-Z_.0-9]+\] |^requirement failed: | ?SQLSTATE: \w+$")
_WORD_INSIDE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SQL_NOISE = re.compile(r" ?SQLSTATE: .*|`_squall_\w+`(, )?|^\[[A-Z_.0-9]+\] ")
_FRAME = re.compile(r'^File "(.+)", line (\d+), in (.+)$')
#: Files in which an error of a user's function passes by, but does not begin.
_NOT_USERS = re.compile(r"/(site-packages|dist-packages|pyspark|python3\.\d+)/|/pipeline/\w+\.py$|^<frozen")
#: In the log after a minute. What is raised tells only that there is no context any more.
_SILENT_MASTER = "All masters are unresponsive"
_FAILED_TASK = re.compile(r"Task (\d+) in stage (\d+)\.\d+ failed \d+ times")
_SILENT_DEATH = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
_TROUBLE = re.compile(r"\bError\b|ERROR|Exception|OutOfMemory|No such file|not found")


class SilentTask(NamedTuple):
    """A task of Spark's whose process died without a message."""

    stage: int
    partition: int


def silent_task(text: str) -> SilentTask | None:
    """The task that an error is about, if its process died without a message."""
    found = _FAILED_TASK.search(text)
    return SilentTask(int(found[2]), int(found[1])) if found and _SILENT_DEATH.search(text) else None


@contextmanager
def one_line_errors(log: Path | None) -> Iterator[None]:
    """Raise errors of the block as one line. End it before the JVM: Spark's exceptions ask the JVM for their text."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if "JAVA_GATEWAY_EXITED" in text:
            raise ClusterError(f"Spark did not start: {_last_words(log) or text}") from error
        if _SILENT_MASTER in _log_of(log):
            raise ClusterError("Spark's master does not answer: it took connections, and no application") from error
        # The cause is a copy: the original cannot be printed once its JVM is dead.
        raise ClusterError(f"Spark failed: {_one_line(text)}") from RuntimeError(text)
    except (Py4JError, ConnectionError) as error:
        raise ClusterError(f"Spark's JVM {_fate()}: {_last_words(log) or 'it left no message'}") from error


class InputTrouble(NamedTuple):
    """What Spark finds wrong with what it reads, or how it was told to."""

    file: str
    """Empty if Spark does not say which."""
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.why}" if self.file else self.why


def input_trouble(error: Exception) -> InputTrouble | None:
    """What an error of Spark says about its input; None if it is about something else, such as a user's function."""
    text = str(error)
    lines = _lines(text)
    if _python_cause(lines) or _SILENT_DEATH.search(text) or "JAVA_GATEWAY_EXITED" in text:
        return None
    is_kind = any(kind.__name__ in _INPUT_ERRORS for kind in type(error).__mro__)
    if not (is_kind or _INPUT_STATE.search(text) or _INPUT_CONDITION.search(text)):
        return None
    file = _READ_FILE.search(text)
    return InputTrouble(unquote(file[1]) if file else "", _one_line(text))


@contextmanager
def data_errors(told: Callable[[InputTrouble], str]) -> Iterator[None]:
    """Raise as a UsageError what Spark finds wrong with the data that it reads in the block; other errors stay. `told`
    makes the line; Spark can be asked meanwhile."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        trouble = input_trouble(error)
        if trouble is None:
            raise
        raise UsageError(told(trouble)) from RuntimeError(str(error))


def mistake_of(error: Exception) -> str:
    """What Spark says about wrong SQL: its first line, without its codes and our own columns."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = _SQL_NOISE.sub("", lines[0] if lines else type(error).__name__)
    return text.replace(", ]", "]")[:MAX_ERROR_CHARS]


def _fate() -> str:
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    try:
        status = process.wait(FATE_TIMEOUT_SECS) if process is not None else None
    except subprocess.TimeoutExpired:
        status = None
    if status is None:
        return "does not answer"
    if status < 0:
        hint = " (out of memory?)" if status == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-status).name}{hint}"
    return f"ended with status {status}"


def _last_words(log: Path | None) -> str:
    """The last line of the JVM's log that names an error; empty if there is none."""
    words = [line.strip() for line in _log_of(log).splitlines() if _TROUBLE.search(line)]
    return _in_words(words[-1].removeprefix("Caused by: "))[:MAX_ERROR_CHARS] if words else ""


def _log_of(log: Path | None) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log is not None and log.exists() else ""


def _one_line(text: str) -> str:
    """The cause of an error of Spark: the Python exception inside a task if there is one, else Java's last cause."""
    lines = _lines(text)
    cause = _python_cause(lines) or _java_cause(lines) or (_in_words(lines[0]) if lines else "it left no message")
    return cause if len(cause) <= MAX_ERROR_CHARS else cause[:MAX_ERROR_CHARS] + " ..."


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _in_words(cause: str) -> str:
    """A line of Java's without the names of its classes, and without Spark's codes."""
    text = _CLASS_INSIDE.sub(r"\1", _CODES.sub("", _CODES.sub("", _CLASS.sub("", cause))))
    found = _CLASS.match(cause)
    # A message that is no sentence says something only with its class: `UnknownHostException: db`.
    if found is None or (" " in text and "Memory" not in found[1]):
        return text
    kind = _WORD_INSIDE.sub(" ", found[1]).lower()
    return f"{kind}: {text}" if text else kind


def _python_cause(lines: list[str]) -> str | None:
    """The last line of the last Python traceback, `ValueError: ...`, with the line of the user's code behind it."""
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        return None
    place = ""
    for line in lines[starts[-1] + 1 :]:
        if frame := _FRAME.match(line):
            place = place if _NOT_USERS.search(frame[1]) else f" ({frame[1]}, line {frame[2]}, in {frame[3]})"
        elif _EXCEPTION_LINE.match(line):
            return line + place
    return None


def _java_cause(lines: list[str]) -> str | None:
    if any("Python worker exited unexpectedly" in line for line in lines):
        # The causes below are about the connection that broke at the worker's death.
        return "a Python worker died without a message (killed, or out of memory?)"
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Without a cause, Java's own words are in the line after py4j's.
    causes = causes or [line.removeprefix(": ") for line in lines[1:2] if line.startswith(": ")]
    return _in_words(causes[-1]) if causes else None
