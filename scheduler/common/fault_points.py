"""Named points in product code at which a test or an operator can have a process die, and the plan of a worker.

Guarantees: off (the default), a point costs one `if`; on, the process kills itself with SIGKILL at the n-th pass of the
named point, so nothing after that point happens.

POINTS are in a worker's loop; a fault plan can name them. STEPS are around whatever is written to disk, and around each
step of a daemon that others see; they are armed by files (see `ipc.fault_point`), also while the cluster runs.
`tests/unit/test_fault_steps.py` holds table and code together.

A plan is text: `point:n`, several separated by commas, in the environment variable SQUALL_FAULT_POINTS of the cluster's
processes. `point:n@count[0]` is for those workers only that have this name: their own, their node's, or that of a
component or task that they run, escaped as in an address (`my%20bolt`). A point fires in the first incarnation of a
worker only, unless it is written `point:n:always`. Link faults (see `ipc.shim`) are armed likewise:
SQUALL_LINK_FAULTS=drop:0.01,duplicate:0.05:data and SQUALL_LINK_SEED.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Container
from urllib.parse import quote, unquote

from squall.engine.errors import UsageError
from squall.ipc.shim import LinkShim, parse_rules

POINTS = {
    "worker.open": "before the tasks are opened",
    "worker.ready": "after the supervisor was told that the worker is ready",
    "worker.receive": "after frames or acks were taken in, before they are acted upon",
    "worker.acks": "after another worker's ackers were told of acks through shared memory",
    "worker.step": "after executors had their turn, before anything is sent",
    "worker.send": "after frames were sent",
    "worker.credit": "after credit was returned",
    "worker.publish": "after the board was written",
    "worker.stop": "when told to stop, before the tasks are closed",
}
STEPS = {
    "store.creating": "Nimbus's store is made beside its place, its tables are not committed",
    "store.created": "Nimbus's new store is complete, but not in its place",
    "store.begun": "Nimbus's new store is in its place",
    "store.changed": "Nimbus has changed rows in a transaction",
    "store.torn": "half of the seal of Nimbus's next change is written",
    "store.sealing": "the seal of the first change of Nimbus's store is written, the directory is not flushed",
    "store.prepared": "the seal of Nimbus's next change is written, the change is not committed",
    "store.committed": "Nimbus's change is committed, its seal is not in its place",
    "store.sealed": "the seal of Nimbus's change is in its place, the directory is not flushed",
    "store.stored": "Nimbus's change is on disk, nobody was told",
    "code.torn": "half of a file of the code store is written",
    "code.written": "a file of the code store is written beside its place",
    "code.placed": "a file of the code store is in its place, the directory is not flushed",
    "code.stored": "a file of the code store is on disk, nobody was told",
    "code.swept": "Nimbus has removed a file from the code store",
    "env.written": "the variables of a submission are written beside their place",
    "env.placed": "the variables of a submission are in their place, the directory is not flushed",
    "env.stored": "the variables of a submission are on disk, the submission is not stored",
    "state.aside": "Nimbus has made the directory for the state of an earlier topology; nothing is in it",
    "state.moved": "Nimbus has set a part of the state of an earlier topology aside",
    "state.returned": "Nimbus has put a part of that state back",
    "state.discarded": "Nimbus is about to remove that state",
    "board.written": "Nimbus has written a status board beside its place",
    "board.placed": "Nimbus has made a status board",
    "faults.written": "Nimbus has written the faults in force beside their place",
    "faults.placed": "Nimbus has written the faults in force",
    "nimbus.begun": "Nimbus holds its lock, the store is not open",
    "nimbus.opened": "Nimbus has opened the store",
    "nimbus.tidied": "Nimbus has removed what an earlier one has left",
    "nimbus.mended": "Nimbus has made missing status boards anew",
    "nimbus.serving": "Nimbus is about to serve",
    "nimbus.asked": "Nimbus has read a request and done nothing",
    "nimbus.accepted": "Nimbus has made the board of a submission, which is not stored",
    "nimbus.told": "Nimbus has carried out or told one of the steps that follow a change",
    "nimbus.removed": "Nimbus has removed the files of a topology that was killed, but not its code",
    "nimbus.done": "Nimbus has done what was requested and not answered",
    "nimbus.answered": "Nimbus has answered a request",
    "nimbus.leaving": "Nimbus has told a supervisor to leave",
    "supervisor.begun": "a supervisor has its socket and its record, and has adopted nobody",
    "supervisor.adopted": "a supervisor has adopted a worker",
    "supervisor.registered": "a supervisor is registered and has not looked at its assignment",
    "supervisor.assigned": "a supervisor has read an assignment and done nothing",
    "supervisor.board": "a supervisor has written a slot's cell on the board",
    "supervisor.asked": "a supervisor has asked its forking parent for a worker",
    "supervisor.forked": "a supervisor has heard of a forked worker and noted nothing",
    "supervisor.noted": "a supervisor has noted a worker in its ledger",
    "supervisor.ready": "a supervisor has heard that a worker is ready",
    "supervisor.recorded": "a supervisor has a slot's step on record, Nimbus was not told",
    "supervisor.told": "a supervisor has told Nimbus of a slot's step",
    "supervisor.stopped": "a supervisor has told a worker to stop",
    "supervisor.signalled": "a supervisor has sent a signal to a worker",
    "supervisor.lost": "a supervisor has seen the end of a worker and written nothing",
    "supervisor.reaped": "a supervisor has looked for the exit status of a worker that has ended",
    "ledger.written": "a supervisor has written a note of a worker beside its place",
    "ledger.placed": "a supervisor's note of a worker is in its place",
    "history.full": "a supervisor's history is full and was not turned over",
    "history.turned": "a supervisor's history was turned over",
    "forking.asked": "the forking parent has read a request",
    "forking.forked": "the forking parent has forked a worker and told nobody",
    "forking.told": "the forking parent has told its supervisor of a worker",
    "forking.reaped": "the forking parent has reaped a worker and told nobody",
    "keeper.locked": "a daemon holds the lock of a keeper that has died, and has started none",
    "keeper.succeeded": "a daemon has started the next keeper",
    "keeper.begun": "the next keeper holds the lock, the record is still that of the one before",
    "keeper.adopted": "the next keeper has adopted the daemons",
    "keeper.ended": "the keeper has seen the end of a daemon",
    "keeper.started": "the keeper has started a daemon again",
    "record.opened": "a daemon's record is open, it is not in it",
    "record.begun": "a daemon's record says that it has begun",
    "record.ended": "a daemon's record says how it has ended",
    "journal.torn": "half of a record is in the journal of a spout task's attempts",
    "journal.written": "a record is in the journal of a spout task's attempts",
    "journal.rewritten": "the journal of a spout task's attempts is written anew beside its place",
    "journal.replaced": "the journal of a spout task's attempts was replaced by a new one",
    "letters.torn": "half of the file of a long dead letter is written",
    "letters.kept": "the file of a long dead letter is written, its line is not",
    "letters.written": "the request for a dead letter is written beside its place",
    "letters.asked": "the request for a dead letter is in its place, the letter is not marked",
    "letters.refused": "a dead letter is marked as refused, the request is still there",
    "failures.written": "a worker has written its list of failures beside its place",
    "words.written": "a worker has written its last words beside their place",
    "words.placed": "a worker's last words are in their place, the board does not say so",
    "line.torn": "half of a line is in a file of lines: history, dead letters, faults",
    "line.written": "a line is in a file of lines",
}
"""Where the processes of a cluster write to disk or start others, and what is done by then."""
ENVIRONMENT = "SQUALL_FAULT_POINTS"
LINK_ENVIRONMENT, LINK_SEED_ENVIRONMENT = "SQUALL_LINK_FAULTS", "SQUALL_LINK_SEED"
_COUNT = re.compile("[0-9]{1,18}", re.ASCII)


class FaultPoints:
    """The armed points of one worker."""

    def __init__(
        self, plan: str, incarnation: int, names: Callable[[], Container[str]] = tuple,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """`names`: by which this worker may be meant; asked only if the plan means some workers only. `tell` is called
        right before a death, with each entry of the plan that asked for it."""
        self._left: dict[str, int] = {}
        self._tell = tell
        self._entries: dict[str, list[tuple[int, str]]] = {}
        """Point -> pass and text of each entry that names it."""
        for entry in filter(None, plan.split(",")):
            when, at, name = entry.partition("@")
            point, _, rest = when.partition(":")
            count, _, always = rest.partition(":")
            if point not in POINTS or not _COUNT.fullmatch(count) or int(count) < 1 or always not in ("", "always"):
                raise UsageError(
                    f"fault point {entry[:80]!r} is not understood; write point:n or point:n:always, point being one "
                    f"of {', '.join(POINTS)}"
                )
            if (always or incarnation == 1) and (not at or unquote(name) in names()):
                self._left[point] = min(int(count), self._left.get(point, int(count)))
                self._entries.setdefault(point, []).append((int(count), entry))

    @property
    def armed(self) -> bool:
        return bool(self._left)

    def hit(self, point: str) -> None:
        """Pass a point; die if the plan says so."""
        left = self._left.get(point)
        if left is None:
            return
        if left == 1:
            self._die(point)
        self._left[point] = left - 1

    def _die(self, point: str) -> None:
        first = min(count for count, _ in self._entries[point])
        for count, entry in self._entries[point]:
            if count == first and self._tell is not None:
                self._tell(entry)
        os.kill(os.getpid(), signal.SIGKILL)


def check_environment() -> None:
    """UsageError if this process's environment, which workers inherit, has a mistake in a plan. Call it before a start:
    workers would die of it, one after the other."""
    for variable, check in ((ENVIRONMENT, lambda plan: FaultPoints(plan, 1)), (LINK_ENVIRONMENT, parse_rules)):
        try:
            check(os.environ.get(variable, ""))
        except UsageError as error:
            raise UsageError(f"{variable}: {error}") from None
    _link_seed()


def link_shim_from_environment(worker: int) -> LinkShim | None:
    """The link faults of this process's environment, if any. Each worker has its own seed."""
    rules = parse_rules(os.environ.get(LINK_ENVIRONMENT, ""))
    return LinkShim(rules, _link_seed() * 1009 + worker) if rules else None


def _link_seed() -> int:
    text = os.environ.get(LINK_SEED_ENVIRONMENT, "0")
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{LINK_SEED_ENVIRONMENT} is {text[:80]!r}; allowed: an integer") from None


def entry_of(point: str, nth_pass: int, name: str) -> str:
    """What a plan says to kill the workers of this name at the n-th pass of a point."""
    return f"{point}:{nth_pass}@{quote(name, safe='')}"


def from_environment(
    incarnation: int, names: Callable[[], Container[str]] = tuple, tell: Callable[[str], None] | None = None
) -> FaultPoints | None:
    """The plan of this process's environment; None if there is none. `names` and `tell` as in FaultPoints."""
    points = FaultPoints(os.environ.get(ENVIRONMENT, ""), incarnation, names, tell)
    return points if points.armed else None
