"""A session of its own process: quiet on the terminal, one line per error, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from squall.engine.errors import ClusterError
from squall.pipeline.session import spark_session
from tests.schemas import mistakes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


DYING = """
import os, signal, sys
from pyspark import SparkContext
from squall.cli import main
from squall.pipeline.session import spark_session
from squall.engine.errors import ClusterError
before = signal.getsignal(signal.SIGINT)
try:
    with spark_session("none", "local[two]"):
        pass
except ClusterError as error:
    print(error)
try:
    with spark_session("dying") as spark:
        java, = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
        try:
            main(["prepare", *sys.argv[1:]])
        except SystemExit as ended:
            assert not ended.code
        # From its first Python task on, it has a connection to this process.
        spark.range(3).mapInArrow(lambda batches: batches, "id bigint").collect()
        print("killed now", file=sys.stderr)
        os.kill(java, signal.SIGKILL)
        spark.range(3).count()
except ClusterError as error:
    print(error)
assert signal.getsignal(signal.SIGINT) is before
assert SparkContext._gateway is SparkContext._active_spark_context is None
"""


@pytest.mark.timeout(400)  # it starts Java twice
def test_the_terminal_shows_our_lines_alone_and_java_that_fails_or_is_killed_is_forgotten_with_its_files(
    source: Path, tmp_path: Path
) -> None:
    (source / "a.txt").write_bytes(b"some words\n\xff\n")
    (source / "b.rst").write_bytes(b"others\n")
    temporary = tmp_path / "t m p"
    temporary.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", DYING, str(source), "--out", str(tmp_path / "feed"), "--glob", "*.txt", "--json"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True, timeout=300,
    )
    failed, *prepared, killed = result.stdout.splitlines()
    assert failed == "Spark failed: Could not parse Master URL: 'local[two]'"
    document = json.loads("".join(prepared))
    assert mistakes(document) == []
    assert (document["rows"], document["quarantined"], document["files"]) == (1, 1, 1)
    assert document["columns"] == {"path": "string", "line_no": "int", "text": "string"}
    assert document["quarantine_shown"] == ["a.txt:2: not UTF-8"]
    assert killed == "Spark's JVM was killed by SIGKILL (out of memory?): it left no message"
    assert (result.returncode, list(temporary.iterdir())) == (0, [])
    quiet, _ = result.stderr.split("killed now\n")
    assert quiet
    assert all(line.startswith("[") for line in quiet.splitlines()), quiet


def test_an_error_is_one_line(spark: SparkSession) -> None:
    def fail(batches: object) -> object:
        raise ValueError("planted\nwith a second line")
        yield

    def die(batches: object) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    planted = r"ValueError: planted \(.*/test_session\.py, line \d+, in fail\)$"
    for function, said in ((fail, planted), (die, "a Python worker died")):
        with pytest.raises(ClusterError, match=f"^Spark failed: {said}"), spark_session("inner") as inner:
            inner.range(3).mapInArrow(function, "id bigint").collect()  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=r"^Spark failed: .*no_such_column[^\n]*$"), spark_session("inner") as inner:
        inner.range(3).select("no_such_column").collect()
