"""The slot's state machine and the node's decisions: what they do, in order. Their random lives: tests/sim."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import Mock, call, create_autospec

import pytest

from squall.ipc.board import DEAD, STARTING
from squall.scheduler.common.messages import (
    Assignment,
    SlotAssignment,
    SlotRef,
    StopWorker,
    TopologyRecord,
    WorkerBoot,
    WorkerFailed,
    WorkerReady,
)
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.common.standstill import CRASH_SIGNALS
from squall.scheduler.supervisor import death_judge
from squall.scheduler.supervisor.death_judge import DeathJudge, Totals
from squall.scheduler.supervisor.decisions import Supervisor
from squall.scheduler.supervisor.dispatcher import Dispatcher, SupervisorParts
from squall.scheduler.supervisor.instruction import (
    ArmTimer,
    DumpStacks,
    Fork,
    Instruction,
    ReplaceForkingParent,
    Report,
    SendStatus,
    SendStop,
    SetBoard,
    SetVerdict,
    Signal,
)
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import (
    SlotAddress,
    SlotState,
    WorkerRemains,
    WorkerRow,
)

EXIT_1, KILLED = 1 << 8, int(signal.SIGKILL)
PORT = 6700


def work(
    topology: str = "words-1", index: int = 0, version: int = 1, status: str = "ACTIVE", n_slots: int = 2,
    resets: int = 0, given_up: list[SlotRef] | None = None,
) -> SlotAssignment:
    record = TopologyRecord(
        topology, topology, status, {}, [], "blob", [], 0.0, given_up=given_up or [], resets=resets
    )
    slots = [SlotRef("node-1", PORT + n) for n in range(n_slots)]
    return SlotAssignment(record, Assignment(topology, version, slots, [[] for _ in slots]), index)


def no_jitter() -> DeathJudge:
    return DeathJudge(RestartPolicyOptions(jitter_ratio=0.0), random.Random(1))


def brief(instruction: Instruction) -> str:
    """An instruction as the tables below write it."""
    match instruction:
        case Fork(boot):
            return f"fork {boot.incarnation}"
        case Signal(pid, signum):
            return f"signal {pid} {signal.Signals(signum).name}"
        case DumpStacks(pid):
            return f"dump stacks {pid}"
        case SendStop(incarnation):
            return f"send stop {incarnation}"
        case SendStatus(incarnation, status):
            return f"send {incarnation} {status}"
        case Report(changed):
            reason = f": {changed.reason}" if changed.reason else ""
            return f"report {changed.incarnation} {changed.event}{reason}"
        case SetBoard(_, _, incarnation, state, pid, _, accused):
            return f"board {incarnation} {state} {pid}" + " accused" * accused
        case SetVerdict(_, _, deaths, hopeless):
            return f"{deaths} in a row" + ", hopeless" * hopeless
        case ArmTimer(at_secs):
            return f"timer {at_secs:g}"
        case ReplaceForkingParent(reason):
            return f"replace: {reason}"


@dataclass
class Bench:
    """A slot, a hand-turned clock and a board that is a dictionary."""

    now: float = 100.0
    cells: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = SlotAddress("/run", "node-1", PORT)
        self.slot = Slot(place, no_jitter(), lambda w: WorkerRow(self.cells.get((w.topology.id, w.slot_index), 0)))

    def do(self, step: Callable[[Slot], list[Instruction]]) -> list[str]:
        done = step(self.slot)
        for instruction in done:
            if isinstance(instruction, SetBoard):
                self.cells[instruction.topology_id, instruction.slot_index] = instruction.incarnation
        return [brief(instruction) for instruction in done]

    def __getattr__(self, event: str) -> Callable[..., list[str]]:
        """What the slot does when this happens to it now."""
        return lambda *what, **named: self.do(
            lambda slot: getattr(slot, event)(*what[:1], self.now, *what[1:], **named)
        )

    def after(self, secs: float) -> list[str]:
        self.now += secs
        return self.do(lambda slot: slot.tick(self.now))

    def run(self) -> Bench:
        """Bring an empty slot to RUNNING."""
        self.assign(work())
        self.forked(11)
        self.ready()
        assert self.slot.state is SlotState.RUNNING
        return self

    def die(self, status: int = KILLED) -> list[str]:
        return self.lost() + self.exited(status)

    def die_for_good(self) -> str:
        """Die again and again; the last that is done."""
        done = self.die()
        while self.slot.state is not SlotState.FAILED:
            self.after(2.0)
            self.forked(12)
            done = self.die()
        return done[-1]


@pytest.fixture
def running() -> Bench:
    return Bench().run()


def test_a_death_is_on_the_board_before_it_is_reported_and_answered_by_a_fork(running: Bench) -> None:
    assert running.lost() == ["signal 11 SIGKILL", "timer 102"]
    assert running.exited(KILLED) == [
        f"board 1 {DEAD} 11",
        "1 in a row",
        "report 1 died: killed by SIGKILL",
        f"board 2 {STARTING} 0",
        "fork 2",
        "timer 115",
    ]


@pytest.mark.parametrize(
    ("status", "remains", "accused"),
    [
        (0, WorkerRemains(), True), (EXIT_1, WorkerRemains(), True), (KILLED, WorkerRemains(), False),
        (KILLED, WorkerRemains(out_of_memory=True), True),
        *((int(signum), WorkerRemains(), True) for signum in CRASH_SIGNALS),
        (int(signal.SIGTERM), WorkerRemains(), False), (int(signal.SIGINT), WorkerRemains(), False),
        (None, WorkerRemains(), False),
    ],
)
def test_only_a_cause_that_a_tuple_can_have_accuses_one(
    status: int | None, remains: WorkerRemains, accused: bool
) -> None:
    bench = Bench().run()
    bench.lost()
    told = bench.after(2.0) if status is None else bench.exited(int(status), remains)
    assert told[0] == f"board 1 {DEAD} 11" + " accused" * accused


def test_a_worker_that_was_stopped_did_not_hang(running: Bench) -> None:
    running.stuck(31.0, "split[3]", is_stopped=True)
    running.after(1.0)
    told = {f"board 1 {DEAD} 11", "report 1 died: no progress for 31 s, stopped by a signal: killed by SIGKILL"}
    assert told <= {*running.die()}


def test_last_words_that_come_last_are_waited_for(running: Bench) -> None:
    assert running.die(EXIT_1)[-1] == "timer 100.3"
    (report, *_) = (i for i in running.slot.worker_failed("boom", running.now) if isinstance(i, Report))
    assert report.changed.error == "boom"
    assert running.slot.state is SlotState.STARTING


def test_a_worker_that_stays_after_its_last_words_is_killed(running: Bench) -> None:
    running.worker_failed("boom")
    assert running.after(5) == ["signal 11 SIGKILL"]
    assert "report 1 died: still there 5 s after it failed: killed by SIGKILL" in running.die()


def test_a_forking_parent_that_does_not_answer_is_replaced() -> None:
    bench = Bench()
    bench.assign(work())
    assert bench.after(15) == ["replace: no answer to a fork request within 15 s", "timer 130"]
    assert bench.fork_failed("the forking parent has ended")[-1] == "timer 115.1"


def test_a_stuck_worker_says_where_it_is_and_is_killed_and_replaced(running: Bench) -> None:
    assert running.stuck(31.0) == ["dump stacks 11", "timer 101"]
    assert running.stuck(32.0) == []  # once is enough
    assert running.after(1.0) == ["signal 11 SIGKILL"]
    assert running.stuck(33.0) == [], "another dump would hide the first"
    running.lost()
    steps = running.exited(KILLED, WorkerRemains("hung at x.py\nmore", 5 << 20))
    assert steps[:2] == [f"board 1 {DEAD} 11 accused", "1 in a row"]
    assert steps[2:4] == ["report 1 died: no progress for 31 s: killed by SIGKILL", "board 2 1 0"]
    assert running.slot.life.incarnation == 2


def test_a_starting_worker_is_stopped_by_a_signal_and_told_again_when_it_listens() -> None:
    bench = Bench()
    bench.assign(work())
    bench.forked(11)
    assert bench.assign(None) == ["signal 11 SIGTERM", "timer 105"]
    assert bench.ready() == ["send stop 1"]


def test_a_slot_that_is_known_to_have_given_up_does_not_try_until_it_is_reset() -> None:
    bench = Bench(cells={("words-1", 0): 7})
    known = [SlotRef("node-1", PORT)]
    assert bench.assign(work(given_up=known)) == ["report 8 failed: it was given up before"]
    assert [changed.event for changed in Supervisor([bench.slot]).standing(bench.now)] == ["failed"]
    assert bench.assign(work(given_up=known)) == []
    assert bench.assign(work(resets=1))[-2] == "fork 8"


def boot_of(wanted: SlotAssignment, incarnation: int) -> WorkerBoot:
    return SlotAddress("/run", "node-1", PORT).boot(wanted, incarnation)


def test_a_survivor_that_has_come_back_is_told_again_what_its_supervisor_may_have_died_of_telling() -> None:
    bench = Bench(cells={("words-1", 0): 4})
    bench.do(lambda slot: slot.adopt(boot_of(work(status="INACTIVE"), 4), 11, True, bench.now))
    assert bench.assign(work(status="INACTIVE")) == []
    assert bench.ready() == ["send 4 INACTIVE"]
    bench.assign(work())
    assert bench.ready() == ["send 4 ACTIVE"]


def test_standing_tells_a_nimbus_that_missed_everything() -> None:
    bench = Bench()

    def standing() -> list[tuple[str, int, int, str]]:
        told = Supervisor([bench.slot]).standing(bench.now)
        return [(changed.event, changed.incarnation, changed.pid, changed.reason) for changed in told]

    assert standing() == []
    bench.assign(work())
    assert standing() == []
    bench.forked(11)
    assert standing() == [("started", 1, 11, "")]
    bench.ready()
    assert standing() == [("ready", 1, 11, "")]
    assert bench.die_for_good() == "report 31 failed: 31 deaths within 60 s, last: killed by SIGKILL"
    [(event, incarnation, _, reason)] = standing()
    assert (event, incarnation, reason) == ("failed", 31, "killed by SIGKILL")
    assert bench.assign(work(version=2))[:2] == ["report 31 stopped", f"board 32 {STARTING} 0"]


def test_a_supervisor_goes_on_with_work_that_it_is_to_keep(running: Bench) -> None:
    supervisor = Supervisor([running.slot])
    supervisor.assign({PORT: work()}, running.now)
    assert supervisor.holds() == {PORT: "words-1"}
    assert supervisor.assign({}, 1.0, keep=[PORT]) == []
    assert running.slot.target == work()
    assert supervisor.assign({}, 2.0)


def test_a_message_of_another_incarnation_changes_nothing_and_its_worker_is_stopped(running: Bench) -> None:
    supervisor = Supervisor([running.slot])
    for message in (WorkerReady(PORT, 9, 11), WorkerFailed(PORT, 9, "boom", "")):
        orders = supervisor.heard(message, running.now)
        assert [(port, brief(step)) for port, step in orders] == [(PORT, "send stop 9")]
    assert running.slot.state is SlotState.RUNNING


def test_a_worker_of_another_topology_does_not_speak_for_the_slot_and_is_stopped() -> None:
    """Of the same slot and incarnation."""
    former, present = (
        WorkerBoot("/run", "node-1", PORT, 1, 0, wanted.topology, wanted.assignment, "log")
        for wanted in (work("former-1"), work("words-1"))
    )
    parts = create_autospec(SupervisorParts, instance=True, supervisor=None, watch=Mock(), server=Mock())
    dispatcher = Dispatcher(parts)
    dispatcher.take_in(present, 11, 5)
    assert dispatcher.knows(present.sender, PORT)
    assert not dispatcher.knows(former.sender, PORT)
    assert parts.server.send_event.call_args_list == [call(former.sender, StopWorker())]


def test_whether_a_death_is_excused_is_asked_before_the_board_says_that_it_happened() -> None:
    """A suspect's worker takes the mark of its trial away when it learns of the death."""
    bench, look = Bench(), Mock(return_value=WorkerRow(nearer=True))
    bench.slot = Slot(bench.slot.address, no_jitter(), look)
    bench.run()
    look.reset_mock()
    assert not any(step.startswith("board") for step in bench.lost())
    look.assert_called_once()


def test_a_life_that_ended_while_no_supervisor_was_there_is_reported_once() -> None:
    cells = {"latest": 3}
    slot = Slot(
        SlotAddress("/run", "node-1", PORT), no_jitter(), lambda work: WorkerRow(cells["latest"], DEAD)
    )
    died = "report 3 died: died; its supervisor was gone"
    assert [brief(step) for step in slot.assign(work(), 0.0)][:2] == [died, "board 4 1 0"]
    # What ended under this supervisor it has reported itself.
    cells["latest"] = 4
    slot.forked(11, 0.0)
    slot.stop(5.0, 0.0)
    slot.lost(0.0)
    slot.exited(0, 0.0)
    assert not [step for step in slot.assign(work(), 1.0) if brief(step).startswith("report")]


def test_a_topology_without_progress_is_called_hopeless_on_the_board_before_nimbus_hears_of_the_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(death_judge, "HOPELESS_ERRORS", 1)
    told = Totals()
    bench = Bench()
    judge = DeathJudge(RestartPolicyOptions(), random.Random(1), lambda _: told)
    bench.slot = Slot(bench.slot.address, judge, lambda work: WorkerRow())
    bench.assign(work())
    assert bench.do(Slot.review) == ["0 in a row"]  # whatever an earlier supervisor wrote
    bench.forked(11)
    bench.worker_failed("bad[2]: ValueError: no")
    steps = bench.die(EXIT_1)
    assert steps.index("1 in a row, hopeless") < steps.index("report 1 died: exited with code 1")
    assert bench.do(Slot.review) == []
    told = Totals(acked=1)
    assert bench.do(Slot.review) == ["0 in a row"]
    assert bench.do(Slot.review) == []
