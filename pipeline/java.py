"""Checks that the Java that Spark would start exists, is new enough and starts, before Spark fails in its own words.

Guarantees that `check_java` returns a runnable Java of at least `MIN_JAVA_VERSION` or raises a UsageError that names
what to install. Relies on the same rule as Spark's own launcher: `$JAVA_HOME/bin/java` if JAVA_HOME is set, else `java`
on the PATH.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import psutil

from squall.engine.errors import ClusterError, UsageError

#: Class files of Spark 4 are Java 17's; an older JVM answers with UnsupportedClassVersionError.
MIN_JAVA_VERSION = 17
DEBIAN_PACKAGE = "openjdk-17-jre-headless"
#: Longest wait for `java -version`: it takes 0.1 s, and Spark is no use on a JVM that is slower than this.
VERSION_TIMEOUT_SECS = 20.0
#: Longest wait for a JVM of Spark's to start, which takes seconds.
LAUNCH_TIMEOUT_SECS = 120.0

_INSTALL = f"install Java {MIN_JAVA_VERSION} or newer (Debian: apt-get install {DEBIAN_PACKAGE}) or set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Java:
    """One Java runtime: its path and its feature version (8, 17, 21, ...)."""

    path: Path
    version: int


def check_java() -> Java:
    """Find the Java that Spark would use; UsageError if there is none or it is too old. Starts a process."""
    path = _find_java()
    version = _read_version(path)
    if version < MIN_JAVA_VERSION:
        raise UsageError(f"Java {version} at {path} is too old for Spark: {_INSTALL}")
    return Java(path, version)


def _find_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise UsageError(f"JAVA_HOME is {home}, which has no bin/java: {_INSTALL}")
        return path
    found = shutil.which("java")
    if found is None:
        raise UsageError(f"Spark needs Java, and there is no java on the PATH: {_INSTALL}")
    return Path(found)


def _read_version(path: Path) -> int:
    try:
        answer = subprocess.run(
            [str(path), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{path} -version has not answered within {VERSION_TIMEOUT_SECS:g} s: {_INSTALL}") from error
    except OSError as error:
        raise UsageError(f"{path} does not run ({error}): {_INSTALL}") from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        said = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        raise UsageError(f"{path} -version does not print a version ({said}): {_INSTALL}")
    return int(match[1])


def launched(launch: Callable[[], Any]) -> Any:
    """Call PySpark's launcher, which looks for Java's answer for ever: if Java hangs, or ends without one."""
    answers: Queue[Callable[[], Any]] = Queue()

    def run() -> None:
        try:
            gateway = launch()
        except BaseException as error:
            answers.put(partial(_raise, error))
        else:
            answers.put(lambda: gateway)

    mine = psutil.Process()
    others = set(mine.children())
    threading.Thread(target=run, name="squall-launcher", daemon=True).start()
    try:
        return answers.get(timeout=LAUNCH_TIMEOUT_SECS)()
    except Empty:
        # A shell, and below it perhaps a Java; these processes are not known otherwise.
        for child in set(mine.children()) - others:
            for process in (child, *child.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        raise ClusterError(
            f"Spark did not start: {_find_java()} has not answered within {LAUNCH_TIMEOUT_SECS:g} s, though it "
            "tells its version"
        ) from None


def _raise(error: BaseException) -> None:
    raise error
