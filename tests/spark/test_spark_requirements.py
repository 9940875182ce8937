"""What the Spark commands say where Java or PySpark is missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.pipeline import spark_errors
from squall.pipeline.session import spark_session
from squall.pipeline.spark_errors import one_line_errors
from tests.process.cli import squall


def test_no_java(tmp_path: Path) -> None:
    done = squall("prepare", "README.md", "--out", tmp_path / "feed", JAVA_HOME=str(tmp_path))
    needs = "^squall: Spark did not start: .*it needs Java 17 or newer, on the PATH or in JAVA_HOME"
    assert re.search(needs, done.stderr, re.MULTILINE)
    assert done.returncode == 2


@pytest.mark.parametrize("name", ["pyspark.sql", "pandas", "pyarrow"])
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


def test_last_words_of_a_java_machine_name_no_class_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_errors, "FATE_TIMEOUT_SECS", 0.0)  # that of the shared session lives
    protocol = pytest.importorskip("py4j.protocol")
    log = tmp_path / "log"
    log.write_text("INFO started\nCaused by: java.lang.IllegalArgumentException: Too large frame: 52\n\tat x.y\n")
    said = "^Spark's JVM does not answer: .*Too large frame: 52$"
    with pytest.raises(ClusterError, match=said), one_line_errors(log):
        raise protocol.Py4JNetworkError("gone")
