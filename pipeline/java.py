"""Checks that the Java that Spark would start is there and new enough, before Spark fails in its own words.

Relies on the same rule as Spark's own launcher: `$JAVA_HOME/bin/java` if JAVA_HOME is set, else `java` on the PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from squall.engine.errors import UsageError

#: Class files of Spark 4 are Java 17's; an older JVM answers with UnsupportedClassVersionError.
MIN_JAVA_VERSION = 17
#: Longest wait for `java -version`: it takes 0.1 s, and Spark is no use on a JVM that is slower than this.
VERSION_TIMEOUT_SECS = 20.0

_INSTALL = f"install Java {MIN_JAVA_VERSION} or newer (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check_java() -> None:
    """UsageError if there is no Java that Spark can use. Starts a process."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if path is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        raise UsageError(f"Spark needs Java, and {where}: {_INSTALL}")
    try:
        answer = subprocess.run(
            [path, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=VERSION_TIMEOUT_SECS, check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{path} does not run ({error}): {_INSTALL}") from error
    found = _VERSION.search(answer.stdout)
    if found is None:
        raise UsageError(f"{path} -version does not print a version: {_INSTALL}")
    if int(found[1]) < MIN_JAVA_VERSION:
        raise UsageError(f"Java {found[1]} at {path} is too old for Spark: {_INSTALL}")
