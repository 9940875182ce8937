"""Reduces Spark's pages of error text to one line.

Guarantees a ClusterError with the Python exception of a task, Java's last cause, or the fate and last words of a dead
JVM, without Java's stack. Relies on the form of Spark 4's texts: if it has changed, its begin is shown, never nothing.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from squall.engine.errors import ClusterError, UsageError

#: Class files of Spark 4 are Java 17's; an older JVM answers with UnsupportedClassVersionError.
MIN_JAVA_VERSION = 17
#: Most characters of an error line, short enough to read: the traceback has the rest.
MAX_ERROR_CHARS = 400
#: Longest wait for the exit status of a JVM that closed its connection.
FATE_TIMEOUT_SECS = 20.0

_EXCEPTION_LINE = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?::\s.*|\s*)$")
_READ_FILE = re.compile(r"Encountered error while reading file (?:file:/*(?=/))?([^\n]*?)\.\s")
_PACKAGE = re.compile(r"(?<![\w./-])(?:org|com|java|javax|scala|py4j)\.(?:[\w$]+\.)+(?=[\w$]+)")
_NOISE = re.compile(r"^: |^Spark\w*Exception: |\[[A-Z][A-Z_.0-9]+\] | ?SQLSTATE: \w+|`_squall_\w+`(?:, )?")
_END_OF_CAUSE = re.compile(r"\n\s*at |\n\s*\.\.\. \d+ more|\n\nJVM stacktrace")
_FRAME = re.compile(r'^File "(.+)", line (\d+), in (.+)$')
#: Files in which an error of a user's function passes by, but does not begin.
_NOT_USERS = re.compile(r"/(site-packages|dist-packages|pyspark|python3\.\d+)/|/pipeline/(\w+/)?\w+\.py$|^<frozen")
#: In the log after a minute. What is raised tells only that there is no context any more.
_SILENT_MASTER = "All masters are unresponsive"
_TROUBLE = re.compile(r"\bError\b|ERROR|Exception|OutOfMemory|No such file|not found")


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
            raise UsageError(
                f"Spark did not start: {_last_words(log) or text}; it needs Java {MIN_JAVA_VERSION} or newer, on the "
                "PATH or in JAVA_HOME (Debian: openjdk-17-jre-headless)"
            ) from error
        if _SILENT_MASTER in _log_of(log):
            raise ClusterError("Spark's master does not answer: it took connections, and no application") from error
        # The cause is a copy: the original cannot be printed once its JVM is dead.
        raise ClusterError(f"Spark failed: {one_line(text)}") from RuntimeError(text)
    except (Py4JError, ConnectionError) as error:
        raise ClusterError(f"Spark's JVM {_fate()}: {_last_words(log) or 'it left no message'}") from error


@contextmanager
def data_errors(told: Callable[[str], str]) -> Iterator[None]:
    """Raise errors of Spark in the block as a UsageError. `told` makes the line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise UsageError(told(one_line(str(error)))) from RuntimeError(str(error))


def mistake_of(error: Exception) -> str:
    """What Spark says about wrong SQL: its first line, without its codes and our own columns."""
    lines = _lines(str(error))
    return one_line(lines[0] if lines else type(error).__name__).replace(", ]", "]")


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
    """The last line of the JVM's log that names an error, or an empty string."""
    words = [line.strip() for line in _log_of(log).splitlines() if _TROUBLE.search(line)]
    return one_line(words[-1]) if words else ""


def _log_of(log: Path | None) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log is not None and log.exists() else ""


def one_line(text: str) -> str:
    """The cause of an error of Spark: the Python exception inside a task if there is one, else Java's last cause."""
    cause = _python_cause(_lines(text)) or _java_cause(text) or "it left no message"
    return cause if len(cause) <= MAX_ERROR_CHARS else cause[:MAX_ERROR_CHARS] + " ..."


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


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


def _java_cause(text: str) -> str:
    if "Python worker exited unexpectedly" in text:
        # The causes below are about the connection that broke at the worker's death.
        return "a Python worker died without a message (killed, or out of memory?)"
    # Without a cause, Java's own words are in the line after py4j's.
    _, _, own = text.partition("\n: ")
    cause = text.rsplit("Caused by: ", maxsplit=1)[-1] if "Caused by: " in text else own or text
    cause = " ".join(_END_OF_CAUSE.split(cause)[0].split())
    cause = _NOISE.sub("", _NOISE.sub("", _PACKAGE.sub("", cause)))
    file = _READ_FILE.search(text)
    return f"{unquote(file[1])}: {cause}" if file and unquote(file[1]) not in cause else cause
