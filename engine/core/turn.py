"""One turn of a worker's loop: decides the order of its phases, and when the worker may sleep.

::

    take in ──► spouts ──► settle ──► feeders ──► answer ──► take in ──► bolts ──► settle ──► send ──► credit
    (frames, acks, news of peers;                 (peers just heard)                         (peers that are due)
     new tuples are executed and settled)

*Feeders* are bolts that other bolts read from. A turn answers and takes in once more before the spouts, too, if spouts
and feeders took long in the turn before.

Guarantees
    * The board's news of peers is acted upon after frames and acks were taken in, and before they are processed; all
      deaths that one look finds are known before any failure is told.
    * Emits of spouts are in their journals before a bolt executes them or a frame carries them.
    * Received tuples are executed and answered before the spouts here emit more. Each phase follows the one before,
      none is entered within another.
    * A worker tells its peers that it sleeps before it looks for work for the last time.

Worker processes, `--local`, `squall.testing` and `make prove` all run this. Decisions and order only: sockets,
processes, files and the clock are handed in.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.engine.api.config import Config
from squall.engine.core.transport import PeerBoard, Transport
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ComponentError
from squall.engine.flow.parcel import Parcel

_FULL_FRAMES = 16
"""Batches of `batch_tuples` that are sent to a peer even if it has not answered the frame before."""
_FEW_BUSY_TURNS = 2
"""Turns after an idle one in which a worker still counts as having time."""


class Sending:
    """Decides when a worker sends its parcels to other workers.

    Every frame costs both ends a tenth of a millisecond of processor time; a tuple that waits for a frame delays its
    tree. So (measured, see benchmarks/NOTES.md):

    * an idle worker sends at once: a tuple waits for others only while there is other work;
    * a worker that has heard from a peer (a frame, or acks in its ring after it has done all received work) answers it
      once the received tuples are executed, and the spouts and feeders here have added their emits: so both ends send
      as often as they can process, at any speed or load, and output made just before a frame leaves does not wait for
      the next;
    * a peer that still has a frame to process gets no further one until it has answered, until a full one has
      gathered, or until the worker looks around (see `due`), so that no tuple waits for an answer that does not come.

    A worker whose spouts emit more than fits a turn sends a full frame at the end of every turn anyway, and answers
    with that.

    Decides only: asks core and transport, sends nothing. Methods return the peers to send to: None is all, an empty set
    none.
    """

    def __init__(self, core: WorkerCore, transport: Transport, batch_tuples: int) -> None:
        self._core = core
        self._transport = transport
        self._enough = batch_tuples
        self._full = _FULL_FRAMES * batch_tuples
        self._busy_turns = 0
        self.idle_turns = 0
        """How many turns in a row have done nothing."""

    def stir(self) -> None:
        """Count the next idle turns as the first ones: other processes wait for news of a change."""
        self.idle_turns = 0

    def answer(self) -> set[int]:
        """The peers to send to after the received tuples were executed."""
        heard = self._transport.take_heard()
        return heard if self._core.ran_dry else set()

    def end_of_turn(self, worked: bool, due: bool) -> set[int] | None:
        """The peers to send to at the end of a turn, which did something (`worked`) or not. `due`: it is time to look
        around, so nothing is kept back any longer."""
        has_time = self._has_time()
        self._busy_turns = self._busy_turns + 1 if worked else 0
        self.idle_turns = 0 if worked else self.idle_turns + 1
        if not worked or due or has_time:
            return None
        waiting = self._core.outgoing.weight
        if waiting >= self._full:
            return None
        return self._transport.caught_up if waiting >= self._enough else set()

    def _has_time(self) -> bool:
        """After a turn that did something: whether the next is likely to find nothing to do.

        A worker that had no idle turn lately does better to fill its frames: each costs as much as a turn.
        """
        return self._busy_turns < _FEW_BUSY_TURNS and self._core.ran_dry and not self._transport.has_input


FRAMES_AT_ONCE = 64
"""Frames taken in before the executors get their turn: bounds the work of one turn to some ten thousand tuples."""
IDLE_WAIT_MIN_MS, IDLE_WAIT_MAX_MS = 1, 30
"""Sleep of an idle worker before it asks its spouts again. Doubles from the first to the second: 1 ms keeps a spout
that just ran dry responsive, 30 ms keeps an idle worker below 1 % of a core and notices deaths in time."""
REST_WAIT_MS, _RESTS_PER_TIMEOUT = 500, 4
"""Longest sleep of a worker in which nothing can begin by itself, and how many there are in `worker_timeout_secs`: it
wakes up only to publish that it lives. Each time costs 0.2 to 0.4 ms, most of it because nothing is in a cache."""
_FULL_WAIT_MS = 4
"""Longest sleep while the queue of another worker is full: less than it takes to empty a queue that is long full."""
_LONG_SAY_NS = 500_000
"""Longest an answer is held back to share a frame: about one link round trip."""
_CREDIT_FRAMES = 16
"""Frames for which a busy worker with nothing to send returns credit at once; an idle one returns it for each."""
_IDLE_TURNS_SHOWN, _IDLE_SHOW_NS = 3, 200_000_000
"""An idle worker shows its first turns, which settle whether it is drained, then one five times a second."""
_STARVING_TURNS = 2
"""Idle turns in a row after which spouts that wait at their limits may starve: by then this worker has told the others
that it is quiet, and they may have told it."""
LOOK_NS = 2_000_000
"""Time between two publications of a busy worker's counters, and looks at all else. A turn that has taken longer does
not take in again."""
_BALANCE_NS = 4_000_000
"""Time between two looks at the waits of tasks."""
_NO_TASKS: frozenset[int] = frozenset()


def _nothing() -> None: ...


class Turn:
    """The turns of one worker."""

    def __init__(
        self, core: WorkerCore, transport: Transport, peers: PeerBoard, config: Config, now_ns: Callable[[], int],
        sent: Callable[[], None] = _nothing,
        sending: Callable[[WorkerCore, Transport, int], Sending] = Sending,
    ) -> None:
        """`sent` is called after each parcel that left."""
        self._core = core
        self._tracking = core.tracking
        self._transport = transport
        self._peers = peers
        self._now_ns = now_ns
        self._sent = sent
        self._write_journals = core.write_journals
        self._sending = sending(core, transport, config.batch_tuples)
        self._crashes = config.on_error == "crash"
        rests_ms = (config.worker_timeout_secs or 1e9) * 1000 / _RESTS_PER_TIMEOUT
        self._rest_wait_ms = max(IDLE_WAIT_MAX_MS, min(REST_WAIT_MS, int(rests_ms)))
        self._timeout_ns = round(config.message_timeout_secs * 1e9)
        self._owes_answers = False
        self._said_ns = 0
        """Time that spouts and feeders took in the last turn."""
        self._look_at_ns = 0
        self._balance_at_ns = self._balance_ns = 0
        self._idle_wait_ms = IDLE_WAIT_MIN_MS
        self.acted = True
        """True if the last turn did anything but ticks that led to nothing."""
        self.rotates_at_ns = 0
        """When a message timeout will have passed since the ackers rotated."""
        self.ended_ns = 0
        """When the executors were done in the last turn."""
        self.shows = False
        """True if it is time to publish the state after the last turn, and to look around."""
        self.blocked = False
        """True if a parcel for another worker could not be sent."""

    def run(self) -> bool:
        """Run one turn; return True if anything was done. Raises TaskCrashed."""
        core, now_ns = self._core, self._now_ns
        core.acted = ran = False
        began_ns = now_ns()
        acted = self._take_in()
        if self._said_ns > _LONG_SAY_NS and self._answer_and_look(began_ns):
            acted = True
        spoke_ns = now_ns()
        core.run_spouts()
        self._write_journals()
        if self.settle():
            acted = True
        if core.run_feeders():
            ran = True
        self._said_ns = now_ns() - spoke_ns
        if self._answer_and_look(began_ns):
            acted = True
        if core.run_bolts():
            ran = True
        if self.settle():
            acted = True
        self.acted = acted = acted or core.acted
        worked = acted or ran
        self.ended_ns = ended_ns = now_ns()
        core.end_turn(ended_ns - spoke_ns)
        self._end(worked, ended_ns)
        return worked

    def stir(self) -> None:
        """Show the next turns: other processes wait for news of a change from outside."""
        self._sending.stir()

    # ---- the phases ----

    def _take_in(self) -> bool:
        """Take in frames and acks, execute and settle them; return True if there were any. Raises TaskCrashed."""
        frames = self._transport.receive(self._core.receive, FRAMES_AT_ONCE)
        acks = self._transport.take_acks(self._tracking.take_acks)
        for worker, parcel, damaged in self._transport.take_lost() if frames else ():
            # Before the news of peers: parcels for a peer that has died are then treated like all others for it.
            self._tracking.frame_lost(worker, parcel, damaged)
        # After receiving: a peer that has sent to an acker's replacement knows of it, so this worker must too
        # before it acks the received tuples, or the acks would go to the dead one.
        self.follow_peers()
        if not (frames or acks):
            return False
        self._owes_answers = True
        if frames:
            # Before the spouts here emit more: the senders wait for the results. Journals first, because answers in the
            # frames may have made spouts emit.
            self._write_journals()
            self._core.run_bolts()
        self.settle()
        return True

    def follow_peers(self) -> None:
        """Act on the board's news of other workers: connect to the ready, fail the trees that the dead held."""
        core, transport, peers = self._core, self._transport, self._peers
        changed = peers.changed_peers()
        if not changed:
            return
        for worker, incarnation, alive, _ in changed:
            if not alive or incarnation != core.peers.incarnation(worker):
                transport.disconnect(worker)
                transport.fence(worker, incarnation if alive else incarnation + 1)
        core.peers_changed(changed, peers.end_of)
        for worker, incarnation, _, ready in changed:
            if ready and not transport.is_connected(worker):
                transport.connect(worker, incarnation, peers.connecting(worker, incarnation))

    def settle(self) -> bool:
        """Bring acks and failures to their ackers, here and elsewhere, and answers to the spouts; return True if there
        were any. Raises TaskCrashed."""
        tracking = self._tracking
        heard = self._transport.take_acks(tracking.take_acks)
        said = tracking.say()
        if tracking.has_to_tell:
            # Before the spouts here are told anything: other workers wait for these acks.
            self._tell()
        if not (tracking.answer() or said or heard):
            return False
        self._write_journals()
        return True

    def _tell(self) -> None:
        """Send acks for other workers by their rings where possible, else in the next parcel."""
        for worker, acks in self._tracking.take_to_tell():
            if not self._transport.tell_acks(worker, acks):
                self._tracking.put_in_parcel(worker, acks)

    def _answer_and_look(self, began_ns: int) -> bool:
        """Do the middle of a turn: answer and, unless the turn is a long one already, take in again."""
        if self._owes_answers:
            self._owes_answers = False
            self._send(self._sending.answer())
        return self._now_ns() - began_ns < LOOK_NS and self._take_in()

    def _end(self, worked: bool, now_ns: int) -> None:
        """Send parcels and credit, and do periodic work that is due."""
        transport, sending = self._transport, self._sending
        due = now_ns >= self._look_at_ns
        workers = sending.end_of_turn(worked, due)
        self._send(None if self.blocked else workers)
        self._peers.publish_full()
        if self._core.pressure.stalled:
            transport.park()
        # One idle turn may be a wait for an answer, which brings the credit with it.
        idle = sending.idle_turns
        if idle >= _STARVING_TURNS and self._core.starves and self._peers.at_rest():
            self._core.widen()
            self._idle_wait_ms = IDLE_WAIT_MIN_MS
        transport.send_credit(at_least=1 if idle > 1 else _CREDIT_FRAMES)
        if worked:
            # Otherwise it would sleep through the turns that publish that it is quiet, up to a bolt's next tick.
            self._idle_wait_ms = IDLE_WAIT_MIN_MS
        self.shows = due and (idle <= _IDLE_TURNS_SHOWN or now_ns >= self._look_at_ns + _IDLE_SHOW_NS - LOOK_NS)
        if due:
            transport.tend(now_ns)
            if self._core.balances and now_ns >= self._balance_at_ns:
                self._balance(now_ns)
        if self.shows:
            self._look_at_ns = now_ns + LOOK_NS
        if now_ns >= self.rotates_at_ns:
            self.rotates_at_ns = now_ns + self._timeout_ns
            self._tracking.rotate()
            transport.pass_over()

    def _balance(self, now_ns: int) -> None:
        """Have the shuffles here follow the waits of all workers."""
        pace = self._core.pace
        if pace.shuffles:
            here, elsewhere = pace.waits_ns(), self._peers.waits_ns(self._transport.caught_up, now_ns)
            pace.balance(lambda task: here[task] if task in here else elsewhere(task))
        # A hundredth of the time at most, however many tasks there are. One look alone may have been interrupted.
        before_ns, self._balance_ns = self._balance_ns, self._now_ns() - now_ns
        self._balance_at_ns = now_ns + max(_BALANCE_NS, 100 * min(before_ns, self._balance_ns))

    # ---- sending ----

    def _send(self, workers: set[int] | None) -> None:
        """Send parcels to these peers (None: to all) as far as their links have credit."""
        if workers is not None and not workers:
            return
        outgoing, transport, peers = self._core.outgoing, self._transport, self._peers
        others_congested = peers.others_congested()
        outgoing.others_are_full(peers.full_elsewhere() if others_congested else _NO_TASKS)
        blocked = self.blocked and workers is not None
        for worker in outgoing.close(workers):
            while (waits := outgoing.has(worker)) and transport.has_credit(worker):
                self._send_parcel(worker, outgoing.take(worker))
            blocked = blocked or waits
        blocked = blocked or outgoing.keeps_back
        if blocked:
            outgoing.measure()
        self.blocked = blocked
        self._core.congested = blocked or others_congested

    def _send_parcel(self, worker: int, parcel: Parcel) -> None:
        """Send a parcel; put it back to be cut if it is too big, and fail its tuple if that alone cannot be sent.
        Raises TaskCrashed then."""
        core = self._core
        try:
            too_big = self._transport.send(worker, parcel, 2 * core.outgoing.frame_bytes_of(parcel))
        except (ComponentError, MemoryError) as error:
            if not parcel.rows:
                raise
            crash = core.not_sent(worker, parcel, error)
            if crash is None:
                return
            if self._crashes:
                raise crash from error
            core.report_error(crash.component, crash.task, str(crash))
            return
        if too_big:
            core.outgoing.put_back(worker, parcel, too_big)
            return
        self._sent()

    def send_last(self) -> None:
        """Send everything before the worker ends by an error; a tuple that cannot be sent is no error any more."""
        self._crashes = False
        self._send(None)

    # ---- sleeping ----

    def lie_down(self) -> int:
        """Return the ms that the worker may wait for an event after a turn; 0 while there is work. If it may, its peers
        have been told that it sleeps, and wake it by a frame. Call `get_up` when the wait is over."""
        transport = self._transport
        transport.polled()
        if not self._sending.idle_turns:
            return 0
        longest_ms = self._longest_wait_ms()
        wait_ms = min(self._idle_wait_ms, longest_ms)
        self._idle_wait_ms = min(2 * wait_ms, longest_ms)
        deadline_ns = self._core.next_deadline_ns
        if deadline_ns is not None:
            wait_ms = max(0, min(wait_ms, -(-(deadline_ns - self._now_ns()) // 1_000_000)))
        if not wait_ms:
            return 0
        transport.set_awake(False)
        # Acks that were told before that came without a frame to wake it.
        return 0 if transport.has_acks else wait_ms

    def _longest_wait_ms(self) -> int:
        if self._core.pressure.full_elsewhere:
            # No event says that a queue of another worker is no longer full.
            return _FULL_WAIT_MS
        return self._rest_wait_ms if self._idle_wait_ms >= IDLE_WAIT_MAX_MS and self._rests() else IDLE_WAIT_MAX_MS

    def _rests(self) -> bool:
        """Return True if nothing can begin here by itself, nor by the death of another worker: only by a frame, acks,
        an order, a thread or a deadline, each of which wakes the worker."""
        core = self._core
        return (
            not self._transport.is_under_way and not any(map(len, core.ackers.values()))
            and all(spout.rests for spout in core.spout_tasks.values()) and core.quiet
        )

    def get_up(self) -> None:
        """Tell peers that the worker reads its ack rings again."""
        self._transport.set_awake(True)
