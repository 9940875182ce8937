"""docs/state-machines.md against the code: each machine is driven through every state and event of its table."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

from squall import UsageError
from squall.engine.clock import NS_PER_SEC
from squall.engine.tracking.attempts import Limits, Remembered
from squall.engine.tracking.fate import Letter
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions, StartAgain
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import IllegalTransition, SlotState
from tests.unit.test_fate import DIED, REFUSED, Task, World
from tests.unit.test_nimbus_decisions import Cluster, request
from tests.unit.test_slot import KILLED, Bench, work

PAGE = Path(__file__).parents[2] / "docs" / "state-machines.md"
ILLEGAL, NOTHING = "illegal", "–"


def table(heading: str) -> dict[tuple[str, str], str]:
    """(row, column) -> cell of the first table below a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    lines = re.findall(r"^\|(.*)\|$", text.split("\n## ", 1)[0], re.MULTILINE)
    header, _, *rows = [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]
    assert len({row[0] for row in rows}) == len(rows), "a row is written twice"
    return {(row[0], column): cell for row in rows for column, cell in zip(header[1:], row[1:], strict=True)}


def same(heading: str, found: dict[tuple[str, str], str]) -> None:
    """The table says what was found, no more and no less."""
    written = table(heading)
    assert {key: cell for key, cell in found.items() if written.get(key) != cell} == {}
    assert written.keys() == found.keys()


# ---- slot ----


def slot_in(state: str) -> Bench:
    bench = Bench()
    if state == "EMPTY":
        return bench
    bench.assign(work())
    if state == "STARTING, not forked":
        return bench
    if state == "BACKOFF":
        bench.fork_failed("no memory")
        return bench
    bench.forked(11)
    if state == "STARTING":
        return bench
    bench.ready()
    if state == "STOPPING":
        bench.assign(None)
    elif state == "EXITED":
        bench.lost()
    elif state == "FAILED":
        bench.die_for_good()
    return bench


SLOT_STATES = ("EMPTY", "STARTING, not forked", "STARTING", "RUNNING", "STOPPING", "EXITED", "BACKOFF", "FAILED")
SLOT_EVENTS: dict[str, Callable[[Bench], object]] = {
    "work": lambda bench: bench.assign(work()),
    "other work": lambda bench: bench.assign(work(version=2)),
    "no work": lambda bench: bench.assign(None),
    "reset": lambda bench: bench.assign(work(resets=1)),
    "forked": lambda bench: bench.forked(99),
    "fork failed": lambda bench: bench.fork_failed("no"),
    "ready": lambda bench: bench.ready(),
    "last words": lambda bench: bench.worker_failed("ValueError: no"),
    "stuck": lambda bench: bench.stuck(31.0),
    "lost": lambda bench: bench.lost(),
    "exit status": lambda bench: bench.exited(KILLED),
    "deadline": lambda bench: bench.after(3600.0),
}


def name_of(slot: Slot) -> str:
    forking = slot.state is SlotState.STARTING and slot.life.pid == 0
    return "STARTING, not forked" if forking else slot.state.name


def outcome(bench: Bench, event: Callable[[Bench], object]) -> str:
    before = name_of(bench.slot)
    try:
        done = event(bench)
    except IllegalTransition:
        return ILLEGAL
    after = name_of(bench.slot)
    return NOTHING if not done and after == before else after


def test_slot() -> None:
    found = {}
    for state in SLOT_STATES:
        for name, event in SLOT_EVENTS.items():
            bench = slot_in(state)
            assert name_of(bench.slot) == state
            found[state, name] = outcome(bench, event)
    same("Slot", found)


# ---- topology ----


def topology_in(state: str) -> Cluster:
    """One worker, a free slot beside it; "moving" and "ending" are the stages in which slots are being emptied."""
    cluster = Cluster(nodes=1, ports=2)
    cluster.submit(workers=1)
    cluster.slot(cluster.slots()[0], "ready")
    if state == "INACTIVE":
        cluster.nimbus.set_status("x", "INACTIVE")
    elif state.startswith("REBALANCING"):
        cluster.rebalance(workers=1, wait_secs=0.0 if "moving" in state else 10.0)
    elif state.startswith("KILLED"):
        cluster.kill(wait_secs=0.0 if "ending" in state else 10.0)
    elif state.startswith("replaced"):
        submit_instead(cluster, wait_secs=0.0 if "ending" in state else 10.0)
    return cluster


def submit_instead(cluster: Cluster, wait_secs: float = 30.0) -> None:
    asked = request(workers=1, replace=True, replace_wait_secs=wait_secs)
    cluster.nimbus.submit(asked, cluster.now, 1.5e9, "0a0b0c0d")


def pass_time(cluster: Cluster) -> None:
    """The limit of the drain passes; nodes are heard from; no worker lives any more that should not."""
    for _ in range(4):
        cluster.now += 2.6
        cluster.heartbeat("node-1")
    due = cluster.nimbus.unaccounted(cluster.now)
    cluster.nimbus.tick(cluster.now)
    for life, _ in due:
        cluster.nimbus.looked(life.record.id, life.slots, [], cluster.now)


TOPOLOGY_STATES = (
    "ACTIVE", "INACTIVE", "REBALANCING, draining", "REBALANCING, moving", "KILLED, draining", "KILLED, ending",
    "replaced, draining", "replaced, ending",
)
TOPOLOGY_EVENTS: dict[str, Callable[[Cluster], object]] = {
    "activate": lambda cluster: cluster.nimbus.set_status("x", "ACTIVE"),
    "deactivate": lambda cluster: cluster.nimbus.set_status("x", "INACTIVE"),
    "rebalance": lambda cluster: cluster.rebalance(workers=1),
    "kill": lambda cluster: cluster.kill(wait_secs=30),
    "replace": submit_instead,
    "reset": lambda cluster: cluster.nimbus.reset("x", cluster.now),
    "slot given up": lambda cluster: cluster.slot(cluster.slots()[0], "failed", 31),
    "node lost": lambda cluster: cluster.nimbus.lost(cluster.id(), cluster.now),
    "drained": lambda cluster: cluster.nimbus.drained(cluster.id(), cluster.now),
    "limit": pass_time,
    "slots empty": lambda cluster: cluster.slot(cluster.slots()[0], "stopped"),
}


def status_of(cluster: Cluster) -> str:
    if "x" not in cluster.names():
        return "gone"
    status = cluster.state.topology.status
    if status not in ("REBALANCING", "KILLED"):
        return status
    stage = "draining" if cluster.nimbus.draining() else ("moving" if status == "REBALANCING" else "ending")
    return f"{'replaced' if cluster.nimbus.topology('x').topology.successor else status}, {stage}"


def version_of(cluster: Cluster) -> int:
    if "x" not in cluster.names():
        return 0
    assignment = cluster.state.assignment
    return 0 if assignment is None else assignment.version


def change_of(cluster: Cluster, before: TopologyRecord) -> str:
    if "x" not in cluster.names():
        return ""
    now = cluster.state.topology
    if now.id != before.id:
        return ", the successor"
    changed = now.successor is not None and before.successor is not None and now.successor != before.successor
    return ", by another" if changed else ""


def test_topology() -> None:
    found = {}
    for state in TOPOLOGY_STATES:
        for name, event in TOPOLOGY_EVENTS.items():
            cluster = topology_in(state)
            assert status_of(cluster) == state
            version, before = version_of(cluster), cluster.state.topology
            try:
                event(cluster)
            except UsageError:
                found[state, name] = "refused"
                continue
            after = f"{status_of(cluster)}{', moved' * (version_of(cluster) > version)}{change_of(cluster, before)}"
            found[state, name] = NOTHING if after == state else after
    same("Topology", found)


# ---- restart policy ----

OPTIONS = RestartPolicyOptions(jitter_ratio=0.0)
SPACING_SECS = 60.0 / 35
"""So that 31 deaths fall within the period."""


def policy_after(deaths: int) -> tuple[RestartPolicy, float]:
    policy, now = RestartPolicy(OPTIONS, random.Random(1)), 100.0
    for _ in range(deaths):
        policy.died(now, lived_secs=0.0)
        now += SPACING_SECS
    return policy, now


def verdict_text(verdict: StartAgain | GiveUp) -> str:
    if isinstance(verdict, GiveUp):
        return "given up"
    return f"after {verdict.delay_secs:g} s" if verdict.delay_secs else "at once"


def die_after_reset(policy: RestartPolicy, now: float) -> StartAgain | GiveUp:
    policy.reset()
    return policy.died(now, lived_secs=0.0)


POLICY_EVENTS: dict[str, Callable[[RestartPolicy, float], StartAgain | GiveUp]] = {
    "dies young": lambda policy, now: policy.died(now, lived_secs=OPTIONS.probation_secs - 0.1),
    "dies after its probation": lambda policy, now: policy.died(now, lived_secs=OPTIONS.probation_secs),
    "dies young, a period later": lambda policy, now: policy.died(now + OPTIONS.period_secs, lived_secs=0.0),
    "dies young, after a reset": die_after_reset,
    "fork refused": lambda policy, now: policy.fork_refused(),
}


def test_restart_policy() -> None:
    found = {}
    for deaths in (0, 1, 2, 3, 4, 5, 6, 7, 29, 30):
        for name, event in POLICY_EVENTS.items():
            found[str(deaths), name] = verdict_text(event(*policy_after(deaths)))
    same("Restart policy", found)


# ---- a message's fate ----

ANSWERS: dict[str, Callable[[Task, int], object]] = {
    "acked": Task.acked,
    "refused": lambda task, root: task.failed(root, REFUSED),
    "timed out": lambda task, root: task.expire(),
    "worker died": lambda task, root: task.failed(root, DIED),
}
LIVED, DEATH = "emit, refused, ", "emit, time, worker died, "
MESSAGES = {
    "under way": "emit",
    "under way for the last time": f"{LIVED * 2}emit",
    "held, a suspect": f"{DEATH * 2}emit",
    "on trial alone": f"{DEATH * 2}emit, time",
    "on trial alone, has killed alone": f"{DEATH * 3}emit, time",
    "a letter, given back": "give back",
    "a letter, under way": "give back, time",
    "in the ledger, emitted again": f"{LIVED * 3}restart, emit",
}
"""What has happened to a message that is in this state."""
WORDS = {"on_failure": "replay", "on_dead_letter": "tell", "send": "release"}


def told_by_the_last(events: str) -> str:
    """What a spout task, and the ledger, are told of its only message by the last of some events."""
    world = World(1, Limits(max_attempts=3, max_crashes=2))
    (task,), told = world.tasks, Mock()
    for event in events.split(", "):
        if event == "restart":
            (task,), before = World(1, task.limits).tasks, task.attempts.tries
            task.attempts.resume(Remembered(before))
        messages = task.messages
        task.inside.outermost, messages.ports.give_up, told.send.side_effect = told, told.bury, task.send
        told.reset_mock()
        if event == "emit":
            task.emit(7)
        elif event == "time":
            messages.let_go(told.send)
        elif event == "give back":
            messages.give_back(Letter(7, (1,), told.close))
        elif event in ANSWERS:
            if not messages.trees:
                return ""
            world.now_ns += 10 * NS_PER_SEC
            ANSWERS[event](task, *messages.trees)
        task.inside.tell()
    heard = [WORDS.get(name, name) for name, *_ in told.mock_calls]
    return ", ".join(heard) or ("keep" if messages.fate.waiting else NOTHING)


def test_message() -> None:
    same("Message", {
        (name, event): told_by_the_last(f"{events}, {event}")
        for name, events in MESSAGES.items() for event in (*ANSWERS, "time")
    })
