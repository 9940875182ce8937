"""Nimbus is killed at random moments while topologies come and go: its store is compared with what clients were told.

Guarantees of `crash_nimbus_at_random`: each Nimbus has answered something before it is killed; what was answered is on
disk; what was not is there whole or not at all; the store opens after every crash.
"""

from __future__ import annotations

import os
import random
import threading
import time

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import ComponentSummary, SubmitTopology
from squall.scheduler.nimbus.store import Store
from tests.process.test_nimbus_process import NimbusDaemon

COMPONENTS = [ComponentSummary("lines", "spout", 2, 2), ComponentSummary("__acker", "acker", 2, 2)]
LONGEST_SECS = 0.1


class Told:
    """What clients were told: which topologies there are. After a request without an answer nobody knows."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.gone: set[str] = set()
        self.unknown: set[str] = set()

    def check(self, run_dir: RunDir) -> None:
        """Compare with the store, and take from it what was unknown."""
        with Store(run_dir.nimbus_db) as store:
            stored = [topology.record for topology in store.topologies()]
            number = store.next_number()
        names = {record.name for record in stored}
        assert self.there <= names, f"acknowledged and lost: {sorted(self.there - names)}"
        assert not self.gone & names, f"killed and still there: {sorted(self.gone & names)}"
        assert names <= self.there | self.unknown, f"never asked for: {sorted(names - self.there - self.unknown)}"
        assert all(int(record.id.split("-")[1]) < number for record in stored)
        self.gone |= self.unknown - names
        self.there |= self.unknown & names
        self.unknown.clear()


def crash_nimbus_at_random(rng: random.Random, crashes: int) -> None:
    run_dir = RunDir.create()
    told = Told()
    try:
        for crash in range(crashes):
            daemon = NimbusDaemon(run_dir)
            pid = daemon.process.pid
            timer = threading.Timer(rng.uniform(0.0, LONGEST_SECS), os.kill, (pid, 9))
            try:
                with NimbusClient(run_dir) as client:
                    assert submit_or_kill(client, run_dir, told, rng, f"c{crash}"), "it was not killed yet"
                    timer.start()
                    come_and_go(client, run_dir, told, rng, f"c{crash}")
            finally:
                if timer.ident is not None:
                    timer.join()
                daemon.process.kill()
                daemon.close()
            told.check(run_dir)
    finally:
        run_dir.remove()
    assert told.there or told.gone


def come_and_go(client: NimbusClient, run_dir: RunDir, told: Told, rng: random.Random, prefix: str) -> None:
    """Submit and kill until there is no answer any more."""
    deadline = time.monotonic() + 10.0
    number = 0
    while time.monotonic() < deadline:
        number += 1
        if not submit_or_kill(client, run_dir, told, rng, f"{prefix}x{number}"):
            return
    raise AssertionError("Nimbus did not die")


def submit_or_kill(client: NimbusClient, run_dir: RunDir, told: Told, rng: random.Random, new_name: str) -> bool:
    """Whether it was answered."""
    kill = bool(told.there) and rng.random() < 0.4
    name = rng.choice(sorted(told.there)) if kill else new_name
    told.there.discard(name)
    told.unknown.add(name)
    try:
        if kill:
            client.kill_topology(name)
        else:
            blob = CodeStore(run_dir.code).put(name.encode())
            client.submit_topology(SubmitTopology(name, {"workers": 1}, COMPONENTS, blob, []))
    except UsageError:
        raise
    except ClusterError:
        return False
    told.unknown.discard(name)
    (told.gone if kill else told.there).add(name)
    return True
