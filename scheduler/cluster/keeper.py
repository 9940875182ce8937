"""Starts a cluster's daemons again when they die.

Guarantees
    * A daemon that was killed or failed is started again: at once the first times, then after a growing delay, and no
      more if it keeps dying. One that ended with code 0 was told to, and is not.
    * A Nimbus that was stopped by a signal, and is not continued for STOPPED_SECS, is killed and so replaced.
    * Workers are left alone: a new supervisor adopts them.

Relies on: running in the daemons' parent process, which learns their exit codes. Thread: main.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from squall.engine.errors import ClusterError
from squall.scheduler.cluster.daemons import Daemons, Ended
from squall.scheduler.common.daemon import EXIT_WRONG_USE
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions

OPTIONS = RestartPolicyOptions(max_delay_secs=2.0, max_deaths=60, period_secs=300.0)
"""Some two minutes of trying: time for an operator to mend a full disk or a descriptor limit. No delay is longer than
half of the time that commands wait for Nimbus (`client.AWAY_PATIENCE_SECS`), so they find it once it can run."""
STOPPED_SECS = 10.0
"""Longest that Nimbus may stay stopped: commands wait as long for its answer (`nimbus_client.TIMEOUT_SECS`)."""
LOOK_SECS = 1.0
"""Between two looks whether Nimbus is stopped. STOPPED_SECS are counted in looks: this process may be stopped too."""


class Keeper:
    """Keeps the daemons of `daemons` running."""

    def __init__(self, daemons: Daemons, rng: random.Random, tell: Callable[[str], None]) -> None:
        """`tell` writes a line for the operator."""
        self._daemons = daemons
        self._rng = rng
        self._tell = tell
        self._policies: dict[str, RestartPolicy] = {}
        self._started_at: dict[str, float] = {}
        self._due: dict[str, float] = {}
        """Daemon -> when it is started again, in seconds of the monotonic clock."""
        self._look_at = 0.0
        self._seen_stopped = 0

    @property
    def is_done(self) -> bool:
        """Whether no daemon is left, and none will be started."""
        return not self._daemons.count and not self._due

    def tick(self, now: float) -> None:
        """Note daemons that have ended, and start those that are due."""
        for ended in self._daemons.ended():
            self._take_end(ended, now)
        for name, at_secs in list(self._due.items()):
            if now >= at_secs:
                del self._due[name]
                self._start(name, now)
        if now >= self._look_at:
            self._look_at = now + LOOK_SECS
            self._look_at_nimbus()

    def _look_at_nimbus(self) -> None:
        self._seen_stopped = self._seen_stopped + 1 if self._daemons.is_stopped("nimbus") else 0
        if self._seen_stopped * LOOK_SECS > STOPPED_SECS:
            self._seen_stopped = 0
            self._tell(f"nimbus was stopped by a signal and has not gone on for {STOPPED_SECS:g} s: it is killed")
            self._daemons.kill("nimbus")

    def run(self) -> None:
        """Keep the daemons until `is_done`."""
        while not self.is_done:
            self.tick(time.monotonic())
            if not self.is_done:
                self._daemons.await_end(self._timeout_secs())

    def _timeout_secs(self) -> float:
        return max(0.0, min([self._look_at, *self._due.values()]) - time.monotonic())

    def _take_end(self, ended: Ended, now: float) -> None:
        if ended.code == 0:
            return
        if ended.code == EXIT_WRONG_USE:
            self._tell(f"{ended.words}\n{ended.name} is not started again: another process runs it, or it cannot run")
            return
        self._died(ended.name, ended.words, now)

    def _died(self, name: str, words: str, now: float) -> None:
        policy = self._policies.setdefault(name, RestartPolicy(OPTIONS, self._rng))
        verdict = policy.died(now, lived_secs=now - self._started_at.get(name, 0.0))
        if isinstance(verdict, GiveUp):
            command = "squall nimbus" if name == "nimbus" else "squall supervisor"
            self._tell(f"{words}\n{name} is given up after {verdict}; the rest of the cluster runs on; see `{command}`")
            return
        when = f"in {verdict.delay_secs:.1f} s" if verdict.delay_secs else "at once"
        self._tell(f"{words}; it is started again {when}, the rest of the cluster runs on")
        self._due[name] = now + verdict.delay_secs

    def _start(self, name: str, now: float) -> None:
        self._started_at[name] = now
        try:
            self._daemons.start_one(name)
        except ClusterError as error:
            self._died(name, str(error), now)
