"""The model: two or three workers, the links between them, a source that replays, and what truly happened.

Each action is a method that says whether it was possible; what is not possible changes nothing, so any list of actions
is a schedule, and any part of one as well. `finish` then stops breaking things, lets everything arrive, expire and
rotate, and looks whether anything is amiss.
"""

from __future__ import annotations

from typing import Any

from squall.engine.api.failure import Failure
from tests.held import early, held
from tests.sim.invariants import (
    MESSAGE_LOST,
    NEVER_ENDED,
    STATE_LEFT,
    WAITED_FOR_TIMEOUT,
    InvariantBrokenError,
)
from tests.sim.node import DATA, HELLO, SPOILT, Node
from tests.sim.parts import MESSAGE_TIMEOUT_NS, Parts
from tests.sim.shapes import Shape
from tests.sim.source import ReplayingSource
from tests.sim.truth import Truth

_ROUNDS = 200
"""More than any small world needs to come to rest."""
_ASKED = 8
"""So often a worker asks in less than a message timeout."""
_TIMEOUTS = 4
_ROTATIONS = 3


class World:
    """One state of the model. Picklable, so that a search can go on from it in several directions."""

    def __init__(self, shape: Shape, parts: Parts, seed: int = 0) -> None:
        self.shape = shape
        self.parts = parts
        self.seed = seed
        self.now_ns = 0
        self.board = [(1, True)] * shape.plan.n_workers
        self.links: dict[tuple[int, int], list[Any]] = {
            (source, target): [] for source, target in LINKS[shape.plan.n_workers]
        }
        self.truth = Truth(shape)
        self.forgot = False
        """A bolt has neither acked nor failed a tuple: its tree waits for the message timeout."""
        self.spout = ReplayingSource(self)
        self.nodes: list[Node | None] = [None] * shape.plan.n_workers
        for me in range(shape.plan.n_workers):
            self.nodes[me] = Node(self, me, 1)

    def now(self) -> int:
        return self.now_ns

    def worker_of(self, task: int) -> int:
        return self.shape.plan.task_worker[task]

    def give_up(self, *letter: Any) -> None:
        raise AssertionError(f"no limit of attempts was set: {letter}")

    def note(self, message_ids: Any, failure: Failure) -> None:
        """What operators are shown of failures is no part of the model."""

    # ---- actions: each returns whether it was possible ----

    def emit(self, _: Any = None) -> bool:
        node = self.nodes[self.shape.spout_worker]
        if node is None:
            return False
        offset = self.spout.read()
        if offset is None:
            return False
        node.emit(offset)
        node.step()
        return True

    def send(self, worker: int) -> bool:
        node = self.nodes[worker]
        return node is not None and node.send()

    def deliver(self, link: tuple[int, int], index: int = 0) -> bool:
        frames = self.links[link]
        if len(frames) <= index:
            return False
        node = self.nodes[link[1]]
        frame = frames.pop(index)
        if node is not None:
            node.take(link[0], frame)
            # After the frame: who sent it may have acted upon what the board said by then.
            node.follow()
            node.step()
        return True

    def deliver_new(self, link: tuple[int, int]) -> bool:
        """A frame of a sender's next incarnation arrives before what the dead one sent: it came by another socket."""
        frames = self.links[link]
        for index, frame in enumerate(frames):
            if frame[1] > frames[0][1]:
                return self.deliver(link, index)
        return False

    def overtake(self, link: tuple[int, int]) -> bool:
        """The second frame of one incarnation arrives first."""
        frames = self.links[link]
        if len(frames) < 2 or frames[0][1] != frames[1][1]:
            return False
        if frames[1][0] in (DATA, SPOILT, HELLO):
            self._lose(frames[0])
        return self.deliver(link, 1)

    def drop(self, link: tuple[int, int]) -> bool:
        if not self.links[link]:
            return False
        self._lose(self.links[link].pop(0))
        return True

    def _lose(self, frame: Any) -> None:
        if frame[0] in (DATA, SPOILT):
            self.truth.lost |= _serials(frame)

    def spoil(self, link: tuple[int, int]) -> bool:
        """The next frame will not be decoded, though every byte of it is right."""
        frames = self.links[link]
        if not frames or frames[0][0] != DATA:
            return False
        frames[0] = (SPOILT, *frames[0][1:])
        self.truth.damaged |= _serials(frames[0])
        return True

    def ask(self, worker: int) -> bool:
        """A worker has heard nothing of its peers for long."""
        node = self.nodes[worker]
        return node is not None and node.ask()

    def repeat(self, link: tuple[int, int]) -> bool:
        frames = self.links[link]
        if not frames:
            return False
        frames.append(frames[0])
        return True

    def repeat_init(self, _: Any = None) -> bool:
        """The acker is told of the spout's newest tree again, in a frame that no link can know for a repeat."""
        node = self.nodes[self.shape.spout_worker]
        if node is None or node.last_init is None:
            return False
        node.tracking.init_tree(*node.last_init)
        node.step()
        return True

    def look(self, worker: int) -> bool:
        """A worker has a turn without frames."""
        node = self.nodes[worker]
        if node is None or node.seen == self.board:
            return False
        node.follow()
        node.step()
        return True

    def flush_kept(self, worker: int) -> bool:
        """A joining bolt waits for no more."""
        node = self.nodes[worker]
        if node is None or not node.kept:
            return False
        node.flush_kept()
        node.step()
        return True

    def wait(self, _: Any = None) -> bool:
        """Half a message timeout passes."""
        self.now_ns += MESSAGE_TIMEOUT_NS // 2
        node = self.nodes[self.shape.spout_worker]
        if node is not None:
            node.step()
        return True

    def rotate(self, worker: int) -> bool:
        node = self.nodes[worker]
        if node is None or self.now_ns < node.rotates_at_ns:
            return False
        node.rotate()
        return True

    def kill(self, worker: int) -> bool:
        """A worker is gone; nobody knows yet."""
        if self.nodes[worker] is None:
            return False
        self.nodes[worker] = None
        self.truth.killed |= 1 << worker
        return True

    def bury(self, worker: int) -> bool:
        """The supervisor writes the death on the board."""
        incarnation, alive = self.board[worker]
        if self.nodes[worker] is not None or not alive:
            return False
        self.board[worker] = (incarnation, False)
        return True

    def restart(self, worker: int) -> bool:
        incarnation, alive = self.board[worker]
        if self.nodes[worker] is not None or alive:
            return False
        self.board[worker] = (incarnation + 1, True)
        if worker == self.shape.spout_worker:
            self.truth.abandon()
            self.spout.open()
        self.nodes[worker] = Node(self, worker, incarnation + 1)
        return True

    # ---- the end ----

    def finish(self) -> None:
        """Break nothing any more, and see that everything ends as promised."""
        for worker in range(len(self.nodes)):
            self.bury(worker)
            self.restart(worker)
        self._settle()
        if not self.forgot and not self._all_acked:
            raise InvariantBrokenError(WAITED_FOR_TIMEOUT, str(self.truth))
        for _ in range(_TIMEOUTS):
            if self._all_acked:
                break
            self._pass_timeout()
        if not all(self.truth.told):
            raise InvariantBrokenError(NEVER_ENDED, str(self.truth))
        if not self._all_acked or self.truth.complete != set(range(self.shape.messages)):
            raise InvariantBrokenError(MESSAGE_LOST, str(self.truth))
        for _ in range(_ROTATIONS):
            if not self._left():
                return
            self._pass_timeout()
        left = self._left()
        if left:
            raise InvariantBrokenError(STATE_LEFT, ", ".join(left))

    def _pass_timeout(self) -> None:
        self.wait()
        self.wait()
        for worker in range(len(self.nodes)):
            self.rotate(worker)
        self._settle()

    @property
    def _living(self) -> list[Node]:
        return [node for node in self.nodes if node is not None]

    @property
    def _all_acked(self) -> bool:
        return self.spout.committed == self.shape.messages and all(self.truth.told)

    def _settle(self) -> None:
        """Every frame arrives in order, every worker has turns, until nothing happens any more."""
        nodes = self._living
        for node in nodes:
            node.follow()
            node.step()
        asked = 0
        for _ in range(_ROUNDS):
            moved = self.emit()
            for node in nodes:
                if node.parcels or node.outbox.rows_there or node.receivers:
                    moved = node.send() or moved
            for (source, target), frames in self.links.items():
                if frames:
                    moved = True
                    arrived = frames[:]
                    frames.clear()
                    node = self.nodes[target]
                    for frame in arrived:
                        node.take(source, frame)  # type: ignore[union-attr]
                    node.follow()  # type: ignore[union-attr]
                    node.step()  # type: ignore[union-attr]
            if moved or [node for node in nodes if node.kept and self.flush_kept(node.me)]:
                continue
            asked += 1
            if asked > _ASKED or not [node for node in nodes if node.ask()]:
                return
        raise InvariantBrokenError(NEVER_ENDED, f"still busy after {_ROUNDS} rounds; {self.truth}")

    def _left(self) -> list[str]:
        """What is still held somewhere, though every message is done."""
        left: list[tuple[int, str]] = []
        for node in self._living:
            left += [(len(node.pending or ()), "pending trees"), (sum(map(bool, node.parcels.values())), "parcels")]
            for acker in node.ackers.values():
                left += [(len(acker), "trees in an acker"), (early(acker), "early messages")]
            for sender, _ in node.senders.values():
                left.append((sender.under_way_bytes, "bytes under way"))
            for receiver in node.receivers.values():
                left.append((held(receiver), "frames done early"))
        return [f"{count} {what}" for count, what in left if count]


def _serials(frame: Any) -> set[int]:
    """The attempts of which a DATA frame has tuples."""
    return {serial for batch in frame[-1].batches for row in batch.rows for serial in row}


LINKS = {
    2: ((0, 1), (1, 0)),
    3: ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)),
}
