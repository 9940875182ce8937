"""Topologies on Spark while things die: the driver, a machine of a standalone cluster. The answers are the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.cli import environment, squall, start
from tests.process.waiting import wait_for
from tests.spark.counting import EXPECTED, counted

pyspark = pytest.importorskip("pyspark")
SPARK_HOME = Path(pyspark.__file__).parent
COUNTING = Path(__file__).parent / "counting.py"
DEADLINE_SECS = 300.0

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1000)]


def done(checkpoint: Path) -> int:
    """The number of the newest batch of which there are rows."""
    return max((int(path.name.partition("-")[0]) for path in checkpoint.glob("batches/*-*")), default=-1)


def on_spark(checkpoint: Path, out: Path, *options: str) -> list[str]:
    return [
        "run", str(COUNTING), "--on", "spark", "--checkpoint", str(checkpoint), "--batch-rows", "1000",
        "--interval", "1", *options, "--", str(out),
    ]


def test_a_killed_driver_goes_on_where_it_was(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    driver = start(*on_spark(checkpoint, tmp_path))
    try:
        wait_for("a batch", lambda: done(checkpoint) >= 2, DEADLINE_SECS)
    finally:
        driver.kill()
        driver.communicate()
    ended = squall(*on_spark(checkpoint, tmp_path), timeout=DEADLINE_SECS)
    assert ended.returncode == 0, ended.stderr
    told = r"going on after batch \d+ of .*\nstarting Spark\nSpark is up after \d+ s\n\d+ s: batch \d+ is under way, "
    assert re.match(told, ended.stderr), ended.stderr
    assert counted(tmp_path) == EXPECTED
    again = squall(*on_spark(checkpoint, tmp_path))
    assert (again.returncode, again.stderr) == (0, f"all of {checkpoint} is done\n")


@contextmanager
def daemon(log: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a standalone cluster, with its children in its group."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", "0", "--webui-port", "0", *arguments], stdout=output, stderr=output,
            start_new_session=True, env=environment(SPARK_LOCAL_IP="127.0.0.1", SPARK_HOME=str(SPARK_HOME)),
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a daemon and its executors at once, as if its machine had died."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_machine_of_a_cluster_dies(tmp_path: Path) -> None:
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "master.log"

    def address() -> str:
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        return found[1] if found else ""

    def worker(number: int) -> tuple[Path, str, str, str, str, str, str, str, str]:
        return (
            tmp_path / f"worker-{number}.log", "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir",
            str(tmp_path / f"work-{number}"), master,
        )

    with daemon(log, "master.Master"):
        master = wait_for("the master", address, DEADLINE_SECS)
        with daemon(*worker(1)), daemon(*worker(2)) as second:
            wait_for("two workers", lambda: log.read_text().count("Registering worker") == 2, DEADLINE_SECS)
            run = start(*on_spark(checkpoint, tmp_path, "--master", master))
            try:
                wait_for("a batch", lambda: done(checkpoint) >= 2, DEADLINE_SECS)
                executors = [path for path in (tmp_path / "work-2").glob("app-*/*") if path.is_dir()]
                assert executors, "the machine that dies runs nothing"
                kill(second)
                _, err = run.communicate(timeout=DEADLINE_SECS)
            finally:
                run.kill()
                run.wait()
            assert run.returncode == 0, err
    assert counted(tmp_path) == EXPECTED
