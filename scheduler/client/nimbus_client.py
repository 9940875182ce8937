"""A program's connection to Nimbus: one typed method per request.

Guarantees
    * UsageError and ClusterError arrive as Nimbus raised them. No call waits for an answer longer than `timeout_secs`:
      then NoAnswer names the pid of the Nimbus that holds the directory.
    * Without a Nimbus, NoCluster says so at once; NimbusAway says so after `patience_secs` if other processes of the
      cluster run, because a keeper may be starting it again.
    * Requests that change something are not repeated: after a timeout they may have been carried out. If Nimbus dies
      before it answers one, NimbusGone says so at once. Questions, and requests that may be carried out twice
      (activate, deactivate, reset, heal, shutdown), are asked of the next Nimbus.
    * Threads may share a client: one request at a time is under way, and its answer goes to the thread that asked.

Relies on: the run directory's key, which only the cluster's owner can read. Thread: any.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.control import ControlClient, NoAnswer, NotStarted, ServerGone
from squall.ipc.private import room_error
from squall.ipc.rundir import UNKNOWN, RunDir
from squall.scheduler.common.messages import (
    ClusterState,
    ForgetUnknown,
    GetCluster,
    HealFaults,
    InjectFault,
    KillTopology,
    NamedTopology,
    RebalanceTopology,
    Shutdown,
    SubmitTopology,
    TopologyRecord,
    TopologyState,
    Wire,
)
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.common.role import processes_of
from squall.scheduler.faults.in_force import NIMBUS, FaultInForce, FaultsTold, faults_now
from squall.scheduler.faults.sentence import Fault, text_of

START_SECS = 60.0
"""Longest wait for workers to start, unless told otherwise: they take a second, more only on an overloaded machine or
if they are slow to open."""
TIMEOUT_SECS = 10.0
"""Longest wait for an answer: Nimbus takes milliseconds, more only on an overloaded machine."""
POLL_SECS = 0.01
AWAY_PATIENCE_SECS = 5.0
"""Longest wait of a command for a Nimbus that is being restarted: more than its keeper pauses between two tries."""
_LOOK_SECS = 0.25
"""Between two looks, while Nimbus is away, at the cluster's processes, each of which reads every process."""
_MOMENT_SECS = 0.2
"""More than Nimbus leaves between its answer to a request for its stop and the stop."""

W = TypeVar("W", bound=Wire)
OnWait: TypeAlias = Callable[[], bool | None] | None
"""Called between the looks of a wait, which ends early when it returns True."""


class NimbusGone(NoAnswer):
    """Nimbus ended before it answered a request, which it may or may not have carried out."""


class Interrupted(ClusterError):
    """The caller ended the wait."""


class NoCluster(ClusterError):
    """No process of the cluster runs."""


class NimbusAway(ClusterError):
    """Processes of the cluster run, and Nimbus did not come back."""


class NotEnded(ClusterError):
    """Nimbus was told to end and has not ended in time."""


class NimbusClient:
    """A connection to the Nimbus of one run directory. A context manager."""

    def __init__(
        self, run_dir: RunDir, timeout_secs: float = TIMEOUT_SECS, patience_secs: float = 0.0,
        on_away: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_away` is called before a wait for a Nimbus that is away."""
        self.run_dir = run_dir
        self._timeout_secs = timeout_secs
        self._patience_secs = patience_secs
        self._on_away = on_away
        self._maker = os.getpid()
        self._require_nimbus()
        self._turn = threading.RLock()
        """Held from a request to its answer: a ZeroMQ socket is for one thread at a time."""
        self._control = self._connected()

    def __enter__(self) -> NimbusClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. In a process forked from the one that has connected, nothing: its sockets are the other's."""
        if os.getpid() == self._maker:
            with self._turn:
                self._control.close(linger_secs=0.0)

    # ---- topologies ----

    def submit_topology(self, request: SubmitTopology) -> TopologyRecord:
        """Start a topology whose code is in the code store."""
        return self._call("submit_topology", request, TopologyRecord)

    def await_begun(
        self, topology: TopologyRecord, timeout_secs: float, on_wait: OnWait = None
    ) -> None:
        """Wait until an accepted topology has taken the place of the one that it replaces. Nimbus sees to that, whether
        or not anybody waits.

        ClusterError if it never will. `on_wait` as in `await_removed`.
        """
        then = f"; {topology.id} takes its place when it is gone"
        self._await_none(lambda: self._still_before(topology), timeout_secs, on_wait, then)

    def _still_before(self, topology: TopologyRecord) -> TopologyRecord | None:
        """The topology whose place this one is to take; None if it has. ClusterError if it never will."""
        there = next((each for each in self.get_cluster().topologies if each.name == topology.name), None)
        if there is not None and there.id == topology.id:
            return None
        if there is None or (there.status == "KILLED" and there.successor is None):
            finished = "it has finished, or " if topology.remove_when_drained else ""
            raise ClusterError(f"topology {topology.id} is not there: {finished}{topology.name} was killed meanwhile")
        newest = there if there.successor is None else there.successor.topology
        if newest.id != topology.id:
            raise ClusterError(f"topology {topology.id} is not there: {newest.id} was submitted in its place meanwhile")
        return there

    def get_topology(self, name: str) -> TopologyState:
        """Record, assignment, workers and deaths of a topology."""
        return self._call("get_topology", NamedTopology(name), TopologyState, repeats=True)

    def activate(self, name: str) -> TopologyRecord:
        """Let the spouts emit."""
        return self._call("activate", NamedTopology(name), TopologyRecord, repeats=True)

    def deactivate(self, name: str) -> TopologyRecord:
        """Stop the spouts; bolts go on."""
        return self._call("deactivate", NamedTopology(name), TopologyRecord, repeats=True)

    def kill_topology(self, name: str, wait_secs: float = 0.0) -> TopologyRecord:
        """Stop the spouts, and the workers once drained, or after `wait_secs`. Returns at once."""
        return self._call("kill_topology", KillTopology(name, wait_secs), TopologyRecord)

    def rebalance(self, name: str, workers: int | None, executors: dict[str, int], wait_secs: float) -> TopologyRecord:
        """Stop the spouts, and move once drained, or after `wait_secs`. Returns at once."""
        return self._call("rebalance", RebalanceTopology(name, workers, executors, wait_secs), TopologyRecord)

    def reset(self, name: str) -> TopologyRecord:
        """Have slots that were given up start anew."""
        return self._call("reset", NamedTopology(name), TopologyRecord, repeats=True)

    def await_removed(
        self, topology_id: str, timeout_secs: float, on_wait: OnWait = None
    ) -> None:
        """Wait until a killed topology's workers have stopped and its name is free.

        `on_wait` is called between looks; when it returns True, Interrupted is raised.
        """

        def find() -> TopologyRecord | None:
            return next((record for record in self.get_cluster().topologies if record.id == topology_id), None)

        self._await_none(find, timeout_secs, on_wait)

    def _await_none(
        self, find: Callable[[], TopologyRecord | None], timeout_secs: float,
        on_wait: OnWait, then: str = "",
    ) -> None:
        """Wait until `find` returns no topology any more."""
        deadline = time.monotonic() + timeout_secs
        while (there := find()) is not None:
            if time.monotonic() >= deadline and (living := self._still_living(there)) is not None:
                raise ClusterError(f"topology {there.id} is still there after {timeout_secs:g} s{living}{then}")
            if on_wait is not None and on_wait():
                raise Interrupted(f"{there.id} still drains{then}")
            time.sleep(POLL_SECS)

    def _still_living(self, there: TopologyRecord) -> str | None:
        """The workers of a topology that have not ended, for a message; None if it has gone since the look."""
        try:
            state = self.get_topology(there.name)
        except UsageError:
            return None
        if state.topology.id != there.id:
            return None
        living = [f"{slot} ({word})" for slot, word in state.workers.items() if word not in ("stopped", "failed")]
        return f": workers that have not ended are {', '.join(living)}" if living else ""

    def forget_unknown(self) -> list[str]:
        """Stop and remove topologies that Nimbus does not know; returns their ids."""
        return self._call("forget_unknown", ForgetUnknown(), ForgetUnknown).ids

    # ---- faults on purpose ----

    def inject(self, fault: Fault, wait_secs: float = 0.0) -> list[FaultInForce]:
        """Begin a fault now; returns one FaultInForce per carrier. A worker that was never started yet is waited for
        for up to `wait_secs`; then NotStarted."""
        deadline = time.monotonic() + wait_secs
        while True:
            try:
                return self._call("inject", InjectFault(text_of(fault)), FaultsTold).faults
            except NotStarted:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(POLL_SECS)

    def heal(self, targets: Sequence[str] = ()) -> list[FaultInForce]:
        """End all faults in force; with `targets`, only those begun with exactly these. Returns them. A Nimbus that a
        fault has stopped is continued first, by pid and start time."""
        for fault in faults_now(self.run_dir, time.monotonic()):
            if not targets or list(targets) == fault.targets:
                for victim in fault.victims:
                    if victim.name == NIMBUS:
                        send_signal_proven(victim.pid, victim.started_ticks, signal.SIGCONT)
        return self._call("heal", HealFaults(list(targets)), FaultsTold, repeats=True).faults

    # ---- the cluster ----

    def get_cluster(self) -> ClusterState:
        """Supervisors, topologies and free slots."""
        return self._call("get_cluster", GetCluster(), ClusterState, repeats=True)

    def shutdown(self, grace_secs: float, drain_secs: float = 0.0) -> None:
        """Stop spouts, then, once drained or after `drain_secs`, workers within `grace_secs`, then the daemons.

        Returns at once; see `await_end`. May be called again, with less patience.
        """
        self._call("shutdown", Shutdown(grace_secs, drain_secs), Shutdown, repeats=True)

    def await_end(self, timeout_secs: float, on_wait: OnWait = None) -> None:
        """Wait until Nimbus has ended. `on_wait` as in `await_removed`."""
        deadline = time.monotonic() + timeout_secs
        while (holder := self.run_dir.lock_holder()) is not None:
            if time.monotonic() >= deadline:
                raise NotEnded(f"Nimbus (pid {holder}) has not ended within {timeout_secs:g} s")
            if on_wait is not None and on_wait():
                raise Interrupted("the wait for the end of the cluster was cut short")
            time.sleep(POLL_SECS)

    # ---- parts ----

    def _connected(self) -> ControlClient:
        return ControlClient(self.run_dir.nimbus_socket, self.run_dir.key(), f"client:{os.urandom(8).hex()}")

    def _require_nimbus(self) -> None:
        """Wait for a Nimbus that is away. NoCluster or NimbusAway if there is none."""
        if self.run_dir.lock_holder() is not None:
            return
        path, next_look = self.run_dir.path, 0.0
        deadline = time.monotonic() + self._patience_secs
        while self.run_dir.lock_holder() is None:
            now = time.monotonic()
            if now >= next_look:
                if not processes_of(self.run_dir):
                    raise NoCluster(f"no cluster runs in {path}{self._reason()}")
                if not next_look:
                    self._on_away()
                next_look = now + _LOOK_SECS
            if now >= deadline:
                raise NimbusAway(
                    f"Nimbus of the cluster in {path} is away{self._reason()}, and did not come back within "
                    f"{self._patience_secs:g} s: workers run on, `squall nimbus --dir {path}` starts it again"
                )
            time.sleep(POLL_SECS)

    def _reason(self) -> str:
        why = room_error(self.run_dir.durable)
        if not why and self.run_dir.zookeeper.exists():
            why = f"it waits if ZooKeeper at {self.run_dir.zookeeper.read_text('utf-8').partition(chr(10))[0]} is away"
        return f" ({why})" if why else ""

    def _call(self, method: str, body: Wire, reply_type: type[W], *, repeats: bool = False) -> W:
        """Ask, and ask the next Nimbus if this one ends before it answers and the request `repeats`: it may be carried
        out twice."""
        if os.getpid() != self._maker:
            # ZeroMQ's sockets do not work in a forked process: it would wait in vain.
            raise UsageError(
                f"this connection to the cluster in {self.run_dir.path} belongs to process {self._maker}, and this "
                "process was forked from it: use Cluster.connect(dir) here"
            )
        until = time.monotonic() + self._timeout_secs
        while True:
            self._require_nimbus()
            asked = self.run_dir.lock_holder()
            try:
                return self._exchange(method, body, reply_type, asked)
            except ServerGone:
                if not repeats or time.monotonic() >= until:
                    raise NimbusGone(
                        f"Nimbus (pid {asked}) ended before it answered{self._reason()}; {method} was carried out or "
                        "not: squall status tells, and it may be asked again"
                    ) from None
            except NoAnswer:
                raise self._silent() from None

    def _exchange(self, method: str, body: Wire, reply_type: type[W], asked: str | None) -> W:
        with self._turn:
            try:
                return self._control.call(method, body, reply_type, self._timeout_secs, partial(self._has_gone, asked))
            except ServerGone:
                # So that a request that has not left yet never reaches the next Nimbus.
                self.close()
                self._control = self._connected()
                raise

    def _has_gone(self, asked: str | None) -> bool:
        """Whether the Nimbus of this pid no longer holds the directory, as far as is known."""
        holder = self.run_dir.lock_holder()
        return holder is None or (holder != asked and UNKNOWN not in (holder, asked))

    def _silent(self) -> NoAnswer:
        return NoAnswer(
            f"Nimbus (pid {self.run_dir.lock_holder()}) does not answer within {self._timeout_secs:.2g} s"
            f"{self._reason()}: it is stopped or hung, or {self.run_dir.key_file} is not the key that it was started "
            "with; the request may still be carried out; SIGCONT continues a stopped one, "
            f"`squall down --dir {self.run_dir.path}` ends the cluster without it"
        )


def nimbus_is_stopped(run_dir: RunDir) -> bool:
    """Whether a fault has stopped Nimbus, or will in a moment: it answers nothing until the end of that fault."""
    now = time.monotonic()
    return any(
        fault.kind == "stop" and any(victim.name == NIMBUS for victim in fault.victims)
        for fault in faults_now(run_dir, now + _MOMENT_SECS)
        if now < fault.ends_secs
    )
