"""What the Spark commands say where Java or PySpark is missing. Every Java here is a real executable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.pipeline.session import check_java, spark_session
from squall.pipeline.spark_errors import one_line_errors


def java(directory: Path, script: str) -> Path:
    path = directory / "java"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize(
    "line",
    ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS', 'openjdk version "25-ea" 2025-09-16'],
)
def test_a_java_that_is_new_enough(tmp_path: Path, line: str) -> None:
    java(tmp_path / "bin", f"echo Picked up JAVA_TOOL_OPTIONS: -Dx=y >&2; echo '{line}' >&2")
    check_java()


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path / "bin", "echo 'openjdk version \"11.0.1\"' >&2")
    java(tmp_path / "home" / "bin", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    check_java()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo 'java version \"1.8.0_392\"' >&2", "Java 8 at .* is too old for Spark"),
        ("echo 'openjdk version \"11.0.1\"' >&2", "Java 11 at .* is too old for Spark"),
        ("exit 3", "does not print a version"),
        ("exec sleep 100", "does not run .*timed out after 0.1 seconds"),
    ],
)
def test_a_java_that_does_not_do(
    tmp_path: Path, script: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "bin", script)
    if "sleep" in script:
        monkeypatch.setattr("squall.pipeline.session.VERSION_TIMEOUT_SECS", 0.1)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(UsageError, match=f"{complaint}.*install Java 17 or newer .*openjdk-17-jre-headless"):
        check_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there is no java on the PATH: install Java 17 or newer"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"JAVA_HOME is .*, which has no bin/java: .*openjdk-17-jre-headless"):
        check_java()


def test_a_java_that_cannot_be_executed(tmp_path: Path) -> None:
    java(tmp_path / "bin", "").write_bytes(b"\x7fELF no program")
    with pytest.raises(UsageError, match=r"java does not run .*Exec format error.*openjdk-17-jre-headless"):
        check_java()


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UsageError, match=r'needs PySpark .*: pip install "squall\[spark\]"'), spark_session("none"):
        pass


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_a_package_that_pyspark_needs_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    needs = rf'^this command needs PySpark \(.*{name}.*\): pip install "squall\[spark\]"$'
    with pytest.raises(UsageError, match=needs), spark_session(""):
        pass


@pytest.mark.parametrize(
    ("logged", "said"),
    [
        ("ERROR Application has been killed. Reason: All masters are unresponsive! Giving up.\n",
         "^Spark's master does not answer: it took connections, and no application$"),
        ("", "^Spark failed: IllegalStateException: it has been stopped$"),
    ],
)
def test_an_error_at_the_start_is_in_words(tmp_path: Path, logged: str, said: str) -> None:
    errors = pytest.importorskip("pyspark.errors")
    (tmp_path / "log").write_text(logged)
    text = "An error occurred while calling None.S.\n: java.lang.IllegalStateException: it has been stopped\n\tat x"
    with pytest.raises(ClusterError, match=said), one_line_errors(tmp_path / "log"):
        raise errors.PySparkException(text)


def test_the_last_words_of_a_java_machine_name_no_class_of_java(tmp_path: Path) -> None:
    protocol = pytest.importorskip("py4j.protocol")
    log = tmp_path / "log"
    log.write_text("INFO started\nCaused by: java.lang.IllegalArgumentException: Too large frame: 52\n\tat x.y\n")
    said = "^Spark's JVM does not answer: .*Too large frame: 52$"
    with pytest.raises(ClusterError, match=said), one_line_errors(log):
        raise protocol.Py4JNetworkError("gone")
