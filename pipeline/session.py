"""One Spark session on this machine, quiet and tidy: the only place that starts or stops a JVM.

Guarantees that the terminal shows nothing of the JVM (its output goes to a log in the session's own directory), that
an error is one line, and that the JVM, its Python workers and every temporary file are gone when the `with`
block ends, by an error, SIGINT or SIGTERM too. Relies on one session per process, which is Spark's rule too: where one
is active already (a notebook, a test run) it is used as it is and left running.

::

    caller ──py4j──► JVM (driver and executors, local[N]) ──pipes──► Python workers, forked by pyspark.daemon
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.pipeline.spark_errors import one_line_errors

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Most tasks at once: more only compete for memory, as a feed has 4 partitions by default.
MAX_LOCAL_CORES = 8
#: Most partitions of a shuffle: Spark's default of 200 is for clusters, and each costs milliseconds even when empty.
MAX_SHUFFLE_PARTITIONS = 4
#: No optimising compiler: our jobs end before it pays off, and take a quarter less processor time without it.
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
#: Longest time from telling a JVM to stop to killing it: it mostly deletes its files.
STOP_TIMEOUT_SECS = 20.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


@contextmanager
def spark_session(app_name: str, master: str | None = None) -> Iterator[SparkSession]:
    """Run a session for the length of the block, on this machine's cores, or on the cluster of `master`. Thread: any,
    but Ctrl-C cancels Spark's jobs on the main one only.

    UsageError if PySpark or Java is missing, ClusterError (one line) for any error of Spark inside the block.
    """
    session_class = _import_session_class()
    active = session_class.getActiveSession()
    if active is not None:
        with one_line_errors(None):
            yield active
        return
    with tempfile.TemporaryDirectory(prefix="squall-spark-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch) / "spark.log"
        with _signals(), _environment(is_here(master)):
            _quiet()
            with one_line_errors(log):
                context, process = _start(_settings(app_name, Path(scratch), master), log)
            try:
                with one_line_errors(log):
                    yield session_class(context)
            finally:
                _stop(context, process)


def usable_cores() -> int:
    """Number of Spark's tasks at once: the cores on which this process may run, within the limit."""
    return max(1, min(len(os.sched_getaffinity(0)), MAX_LOCAL_CORES))


def _import_session_class() -> type[SparkSession]:
    try:
        import pandas  # noqa: F401 - PySpark imports them on first use
        import pyarrow  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(f'this command needs PySpark ({error}): pip install "squall[spark]"') from error
    return SparkSession


def is_here(master: str | None) -> bool:
    """Return True if the processes of a session are all on this machine, as far as the master's address shows."""
    if master is None or not master.startswith("spark://"):
        return master is None or master.startswith("local")
    return all(place.rpartition(":")[0] in LOOPBACK for place in master.removeprefix("spark://").split(","))


def _settings(app_name: str, scratch: Path, master: str | None) -> Mapping[str, str]:
    cores = usable_cores()
    # In quotes, because the launcher splits options at spaces, and TMPDIR may contain some.
    java_options = f'"-Djava.io.tmpdir={scratch}" "-Dderby.system.home={scratch}" {JVM_OPTIONS}'
    # On another machine's cluster, executors must find the driver.
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_here(master) else {}
    return {
        **here,
        "spark.app.name": app_name,
        "spark.master": master or f"local[{cores}]",
        "spark.driver.extraJavaOptions": java_options,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        # Spark would write down what must hold of each column in terms of all others: each column that is compared
        # doubles that, and of seven a comparison took 90 s instead of 2.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(2, min(cores, MAX_SHUFFLE_PARTITIONS))),
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _start(settings: Mapping[str, str], log: Path) -> tuple[SparkContext, subprocess.Popen[bytes] | None]:
    """Start a context. Returns it, and the JVM's process if we must end it: not if an earlier session left that JVM."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if SparkContext._gateway is not None:
        return SparkContext(conf=conf), None
    with log.open("ab") as output:
        try:
            gateway: Any = launch_gateway(conf, {"stdout": output, "stderr": output})
        except OSError as error:
            raise UsageError(f"Spark's launcher does not run ({error}); is SPARK_HOME right?") from error
    process: subprocess.Popen[bytes] | None = gateway.proc
    try:
        # Spark's errors ask the JVM for their text, so while it lives.
        with one_line_errors(log):
            return SparkContext(conf=conf, gateway=gateway), process
    except BaseException:
        _end_gateway(gateway, process)
        raise


def _stop(context: SparkContext, process: subprocess.Popen[bytes] | None) -> None:
    from pyspark import SparkContext as Context
    from pyspark.sql import SparkSession

    gateway: Any = Context._gateway
    if process is None:
        session = SparkSession.getActiveSession()
        (session or context).stop()
        return
    try:
        if process.poll() is None:
            context.stop()
    finally:
        # Do as SparkSession.stop() does, but without the JVM: it may be dead, and it ends here anyway.
        Context._active_spark_context = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        _end_gateway(gateway, process)


def _end_gateway(gateway: Any, process: subprocess.Popen[bytes] | None) -> None:
    """Wait for the JVM's end: its files must not be deleted while it still writes them."""
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    if process is None:
        return
    # The JVM reads the end of its standard input as its caller's death.
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _environment(here: bool) -> Iterator[None]:
    """Set the variables that Spark's launcher and its Python side read, and restore them after the block."""
    before = dict(os.environ)
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    if here:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The session must be on this machine, even if the shell names a Spark Connect server.
    os.environ.pop("SPARK_REMOTE", None)
    try:
        yield
    finally:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_REMOTE"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@contextmanager
def _signals() -> Iterator[None]:
    """End the block on SIGTERM, which by default ends the process at once, and restore the caller's SIGINT after it.

    SparkContext takes SIGINT over for good: it cancels the jobs and raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    if before[signal.SIGTERM] is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        for signum, handler in before.items():
            # None: the handler was not set by Python, and cannot be restored from here.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """Cancel the jobs and interrupt the block, as Spark does on SIGINT."""
    from pyspark import SparkContext

    try:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.cancelAllJobs()
    finally:
        raise SystemExit(128 + signum)


def _quiet() -> None:
    """Silence what PySpark logs of an error in SQL, with all of Java's stack, and what py4j logs of a lost JVM to the
    root: the error is told in one line."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # Python prints what is logged to the root while that has no handler.
    logging.getLogger().addHandler(logging.NullHandler())
