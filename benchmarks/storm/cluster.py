"""A real Storm cluster on this machine: ZooKeeper, Nimbus and a supervisor, a JVM each, and the workers that it starts.

Guarantees: every process that it started has ended when the block ends, workers' and bolts' too; what they wrote to
their standard error is in the directory, and its end in the error if one of them dies.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.storm.artefacts import HERE

SLOTS = 2
_START_SECS = 90.0
_ZOOKEEPER = """\
dataDir={directory}/zookeeper
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
tickTime=2000
maxSessionTimeout=900000
"""
_LONG_SECS = 900
"""Of every timeout: the cluster is stopped, by signal, while others are measured."""


class Cluster:
    """Daemons that run in the background until the end of the block."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self.jars = jars
        self.directory = directory
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.zookeeper_port, self.nimbus_port, self.supervisor_port, *self.slots = _free_ports(3 + SLOTS)

    def __enter__(self) -> Cluster:
        home = self.directory / "home"
        for name in ("conf", "log4j2", "extlib", "logs"):
            (home / name).mkdir(parents=True)
        (home / "lib-worker").symlink_to(self.jars)
        for name in ("worker.xml", "cluster.xml"):
            (home / "log4j2" / name).symlink_to(HERE / "log4j2.xml")
        # JSON is YAML.
        (home / "conf" / "storm.yaml").write_text(json.dumps(self._settings(), indent=1))
        (self.directory / "zoo.cfg").write_text(
            _ZOOKEEPER.format(directory=self.directory, port=self.zookeeper_port)
        )
        try:
            configuration = str(self.directory / "zoo.cfg")
            self._start("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", configuration)
            self._await_port("zookeeper", self.zookeeper_port)
            self._start("nimbus", "org.apache.storm.daemon.nimbus.Nimbus")
            self._await_port("nimbus", self.nimbus_port)
            self._start("supervisor", "org.apache.storm.daemon.supervisor.Supervisor")
            self._await_port("supervisor", self.supervisor_port)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, jar: Path, *arguments: str) -> None:
        """Run the topology's main program, as `storm jar` does."""
        command = [*self._java("client", [f"-Dstorm.jar={jar}"], extra=str(jar)), "WordCount", *arguments]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments[:2])}: {done.stderr[-2000:]}")

    def check(self) -> None:
        """RuntimeError if a daemon has died."""
        for name, process in self.daemons.items():
            if process.poll() is not None:
                said = (self.directory / f"{name}.err").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"Storm's {name} ended with {process.returncode}: {said}")

    def pause(self) -> None:
        """Stop every process, so that others have the machine to themselves."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def workers(self) -> list[psutil.Process]:
        """The worker JVMs, without the processes that read what they print."""
        found = []
        for process in self._processes():
            try:
                if "org.apache.storm.daemon.worker.Worker" in process.cmdline() and not any(
                    "LogWriter" in part for part in process.cmdline()
                ):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def _settings(self) -> dict[str, object]:
        return {
            "storm.local.dir": str(self.directory / "local"),
            "storm.workers.artifacts.dir": str(self.directory / "artifacts"),
            "storm.log4j2.conf.dir": str(self.directory / "home" / "log4j2"),
            "storm.local.hostname": "127.0.0.1",
            "storm.zookeeper.servers": ["127.0.0.1"],
            "storm.zookeeper.port": self.zookeeper_port,
            "storm.zookeeper.session.timeout": _LONG_SECS * 1000,
            "nimbus.seeds": ["127.0.0.1"],
            "nimbus.thrift.port": self.nimbus_port,
            "nimbus.task.timeout.secs": _LONG_SECS,
            "nimbus.supervisor.timeout.secs": _LONG_SECS,
            "nimbus.monitor.freq.secs": 2,
            "supervisor.thrift.port": self.supervisor_port,
            "supervisor.slots.ports": self.slots,
            "supervisor.worker.timeout.secs": _LONG_SECS,
            "supervisor.worker.heartbeats.max.timeout.secs": _LONG_SECS,
            "worker.max.timeout.secs": _LONG_SECS,
            "supervisor.monitor.frequency.secs": 1,
            "supervisor.worker.shutdown.sleep.secs": 1,
            "worker.childopts": "",
        }

    def _java(self, name: str, options: list[str], extra: str = "") -> list[str]:
        home = self.directory / "home"
        path = ":".join(part for part in (f"{self.jars}/*", str(home / "conf"), extra) if part)
        return [
            "java", "-server", f"-Ddaemon.name={name}", f"-Dstorm.home={home}", f"-Dstorm.log.dir={home / 'logs'}",
            "-Dstorm.conf.file=", "-Dstorm.options=", f"-Dlogfile.name={name}.log", "-Xmx512m",
            f"-Dlog4j.configurationFile={home / 'log4j2' / 'cluster.xml'}", *options, "-cp", path,
        ]  # fmt: skip

    def _start(self, name: str, main: str, *arguments: str) -> None:
        with (self.directory / f"{name}.err").open("wb") as said:
            self.daemons[name] = subprocess.Popen(
                [*self._java(name, []), main, *arguments],
                cwd=self.directory, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                env={**os.environ, "STORM_CONF_DIR": str(self.directory / "home" / "conf")},
            )  # fmt: skip

    def _await_port(self, name: str, port: int) -> None:
        deadline = time.monotonic() + _START_SECS
        while True:
            self.check()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Storm's {name} does not listen after {_START_SECS:g} s") from None
                time.sleep(0.1)

    def _processes(self) -> list[psutil.Process]:
        """The daemons and all their descendants: supervisors start workers, workers start bolts."""
        found = []
        for process in self.daemons.values():
            try:
                daemon = psutil.Process(process.pid)
                found += [daemon, *daemon.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def _signal(self, number: int) -> None:
        for process in self._processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def _end(self) -> None:
        # A killed parent's children would be nobody's: they are listed before, and a stopped one is killed as well.
        left = self._processes()
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for daemon in self.daemons.values():
            daemon.wait()
        psutil.wait_procs(left, timeout=10.0)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
