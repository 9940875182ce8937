"""A cluster's store in ZooKeeper, where `squall up --zookeeper` has put it, and a Nimbus that stands by.

This is the only module that imports kazoo. Without kazoo, importing it is a UsageError.

Guarantees
    * Only the Nimbus that opened the store last changes it: to open it raises the version of its root, which every
      transaction checks. So what is held in memory is what is stored.
    * A change that ZooKeeper has not answered within BUSY_TIMEOUT_SECS is a StoreError that names it.
    * A new store is made only in a directory without traces of topologies.
    * Nobody becomes Nimbus without the run directory's lock. A standby takes that as soon as its holder has ended, and
      when the holder's session is gone: a Nimbus that stands still, or is cut off from ZooKeeper, is killed.
    * While ZooKeeper is away a standby waits, and ends if it is told to.

Relies on: `submission.SUBMISSION_MAX_BYTES`, a quarter of what ZooKeeper takes; every Nimbus being listed in ZooKeeper
before it takes the lock, so that one which holds it and is not listed has lost its session.
Threads: Nimbus's loop; kazoo has its own.

Layout::

    /squall/<id>/store                    the version; below it a node for each row of the books
    /squall/<id>/nimbus/<pid>-<start>     while the session of that Nimbus lasts
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import zmq

from squall.engine.errors import UsageError
from squall.ipc.private import replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common.daemon import DaemonRecord, SignalInbox, read_record, tell_ready, write_record
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.common.role import STANDBY, Role, RoleKind, show_role
from squall.scheduler.nimbus.books import BUSY_TIMEOUT_SECS, Books, StoreError, refuse_traces, rows_of

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException, NodeExistsError
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.protocol.states import KeeperState
except ImportError as error:
    raise UsageError(f"ZooKeeper needs another package: pip install 'squall[zookeeper]' ({error})") from None

VERSION = b"2"
SESSION_SECS = 10.0
"""A Nimbus that ZooKeeper has not heard of for so long gives way to the standby."""
TOLD_SECS = 1.0
"""A wait for ZooKeeper at the start that is longer is told in the log."""
POLL_SECS = 0.05
LOCK_LOOK_MS = 50
SESSION_LOOK_SECS = 1.0

log = logging.getLogger("squall.scheduler.nimbus")


def put_in_zookeeper(
    run_dir: RunDir, hosts: str, tell: Callable[[str], None], is_over: Callable[[], bool] = lambda: False
) -> None:
    """Have a new directory's store in ZooKeeper from now on, once that answers. UsageError if a cluster runs there, or
    has its store elsewhere."""
    servers, parent = _parent_of(hosts)
    is_there = _is_there(run_dir, hosts)
    if not await_answer(hosts, tell, is_over) or is_there:
        return
    with run_dir.lock():
        if not _is_there(run_dir, hosts):
            replace_file(run_dir.zookeeper, f"{servers}\n{parent}/{os.urandom(6).hex()}\n".encode(), sync=True)


def _parent_of(hosts: str) -> tuple[str, str]:
    """The servers, and the node that the nodes of directories are in."""
    servers, slash, folder = hosts.partition("/")
    return servers, f"{slash}{folder}".rstrip("/") + "/squall"


def _is_there(run_dir: RunDir, hosts: str) -> bool:
    """Return True if the directory has its store there, False if it has none. UsageError if it is elsewhere."""
    if run_dir.zookeeper.exists():
        found, path = place_of(run_dir)
        if (found, os.path.dirname(path)) != _parent_of(hosts):
            raise UsageError(
                f"--zookeeper {hosts!r:.200}: {run_dir.path} has its store at {found}{path.rpartition('/squall/')[0]}: "
                f"leave the option out; other hosts of that ZooKeeper are written into {run_dir.zookeeper}"
            )
        return True
    if run_dir.nimbus_db.exists():
        raise UsageError(f"--zookeeper: {run_dir.path} has its store in nimbus.db: choose another directory")
    return False


def place_of(run_dir: RunDir) -> tuple[str, str]:
    """Hosts of ZooKeeper, and the path of this directory's node there."""
    try:
        hosts, path = run_dir.zookeeper.read_text("utf-8").splitlines()
    except ValueError:
        raise StoreError(f"{run_dir.zookeeper} is damaged: it says where the store is; put back a copy") from None
    return hosts, path


def await_answer(hosts: str, tell: Callable[[str], None], is_over: Callable[[], bool]) -> bool:
    """Wait until ZooKeeper answers, or `is_over`; return True if it answers."""
    client = client_of(hosts)
    try:
        answers = client.start_async()
        if not answers.wait(TOLD_SECS):
            tell(f"waiting for ZooKeeper at {hosts}")
        while not answers.wait(POLL_SECS) and not is_over():
            pass
        return bool(answers.is_set())
    finally:
        close(client)


def client_of(hosts: str) -> KazooClient:
    """A client that, once started, connects again whenever it has lost its connection."""
    # It would tell of each attempt.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        if "://" in hosts:
            raise ValueError("it is no URL")
        return KazooClient(hosts, timeout=SESSION_SECS, connection_retry={"max_tries": -1, "max_delay": 1.0})
    except ValueError as error:
        allowed = "HOST:PORT, several of them with commas, and then /FOLDER"
        raise UsageError(f"--zookeeper {hosts!r:.200}: {error}; allowed: {allowed}") from None


def open_alone(run_dir: RunDir) -> ZooKeeperStore:
    """Open the store without being Nimbus. StoreError if ZooKeeper does not answer."""
    hosts, _ = place_of(run_dir)
    client = client_of(hosts)
    try:
        with told(f"ZooKeeper at {hosts}"):
            client.start(timeout=BUSY_TIMEOUT_SECS)
        return ZooKeeperStore(run_dir, client)
    except BaseException:
        close(client)
        raise


def close(client: KazooClient) -> None:
    """End a client's session, if it has one. May be called again."""
    client.stop()
    client.close()


@contextlib.contextmanager
def told(name: str, so: str = "") -> Iterator[None]:
    """Errors of the block as a StoreError that names the store. `so`: what follows if there is no answer."""
    try:
        yield
    except (KazooTimeoutError, ConnectionLoss) as error:
        raise StoreError(f"{name} does not answer{so}: is that server up?") from error
    except KazooException as error:
        raise StoreError(f"{name}: {type(error).__name__} {error}".rstrip()) from error


class ZooKeeperStore(Books):
    """The books in ZooKeeper."""

    deaths_kept = 100
    """Each is a node, which is read when the store is opened."""

    def __init__(self, run_dir: RunDir, client: KazooClient) -> None:
        """The caller holds the directory's lock, and has started the client, which is closed with the store."""
        hosts, path = place_of(run_dir)
        self._client = client
        self._root = f"{path}/store"
        self._name = f"store {self._root} in ZooKeeper at {hosts}"
        with told(self._name):
            if client.exists(self._root) is None:
                refuse_traces(run_dir, self._name)
                client.create(self._root, VERSION, makepath=True)
            version, _ = client.get(self._root)
            if version != VERSION:
                raise StoreError(f"{self._name} has version {version!r:.20}, this Squall reads {VERSION!r}")
            self._turn = client.set(self._root, VERSION).version
            # All at once: each death is a node, and a standby's turn must not wait for them one after the other.
            asked = {row: client.get_async(f"{self._root}/{row}") for row in client.get_children(self._root)}
            bodies = [(row, answer.get(timeout=BUSY_TIMEOUT_SECS)[0]) for row, answer in asked.items()]
        try:
            super().__init__(rows_of(bodies))
        except ValueError as error:
            raise StoreError(f"{self._name} is damaged: {error}") from error

    def close(self) -> None:
        """End the session. May be called again."""
        close(self._client)

    def _write(self, changes: Mapping[str, bytes | None], before: Collection[str]) -> None:
        request = self._client.transaction()
        request.check(self._root, self._turn)
        for row, body in changes.items():
            if body is None:
                request.delete(f"{self._root}/{row}")
            else:
                (request.set_data if row in before else request.create)(f"{self._root}/{row}", body)
        with told(self._name, ", so the change is made, or not"):
            results = request.commit_async().get(timeout=BUSY_TIMEOUT_SECS)
        if failed := [type(result).__name__ for result in results if isinstance(result, Exception)]:
            opened = isinstance(results[0], BadVersionError)
            raise StoreError(f"{self._name}: {'another Nimbus has opened it since' if opened else ', '.join(failed)}")


class Session:
    """A Nimbus's session, for the life of its process, which ends when ZooKeeper has given it up."""

    def __init__(self, run_dir: RunDir) -> None:
        hosts, path = place_of(run_dir)
        self.client = client_of(hosts)
        self._listing = f"{path}/nimbus"
        self._is_listed = False
        self.client.add_listener(partial(self._take_state, hosts))
        if not self.client.start_async().wait(TOLD_SECS):
            log.warning("waiting for ZooKeeper at %s", hosts)

    def is_listed_itself(self) -> bool:
        """Whether others can see that this process has a session. Waits a moment for ZooKeeper's answer."""
        if self.client.connected and not self._is_listed:
            with told(self._listing), contextlib.suppress(ConnectionLoss, KazooTimeoutError):
                here = self._place(DaemonRecord.of_process())
                with contextlib.suppress(NodeExistsError):  # the answer to an earlier try was lost
                    self.client.create_async(here, makepath=True, ephemeral=True).get(timeout=BUSY_TIMEOUT_SECS)
                self._is_listed = True
        return self.client.connected and self._is_listed

    def has_lost(self, nimbus: DaemonRecord) -> bool:
        """Whether ZooKeeper answers, and says that this process has no session any more."""
        with contextlib.suppress(KazooException, KazooTimeoutError):
            # So that a server that lags behind the others does not answer from what was.
            self.client.sync_async(self._listing).get(timeout=BUSY_TIMEOUT_SECS)
            return self.client.exists_async(self._place(nimbus)).get(timeout=BUSY_TIMEOUT_SECS) is None
        return False

    def _place(self, nimbus: DaemonRecord) -> str:
        return f"{self._listing}/{nimbus.pid}-{nimbus.started_ticks}"

    def _take_state(self, hosts: str, state: str) -> None:
        log.warning("ZooKeeper at %s: %s", hosts, state)
        if self.client.client_state == KeeperState.EXPIRED_SESSION:
            # Here, whatever the loop does: the standby may have its turn by now. All is stored that was answered.
            log.error("the session with ZooKeeper is lost: ending")
            os._exit(1)


def await_turn(
    run_dir: RunDir, options: argparse.Namespace, inbox: SignalInbox, poller: zmq.Poller
) -> tuple[io.FileIO, ZooKeeperStore] | None:
    """The run directory's lock and its store, once it is this process's turn; None if it is told to end."""
    show_role(STANDBY)
    session = Session(run_dir)
    look_at = time.monotonic() + SESSION_LOOK_SECS
    while True:
        poller.poll(LOCK_LOOK_MS)
        if inbox.take() or inbox.lifeline_cut():
            return None
        if not session.is_listed_itself():
            continue
        if run_dir.lock_holder() is None:
            with contextlib.suppress(UsageError):  # another one was faster
                lock = run_dir.lock()
                break
        tell_ready(options.ready_fd)
        options.ready_fd = None
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + SESSION_LOOK_SECS
            _end_lost(run_dir, session)
    show_role(Role(RoleKind.NIMBUS))
    write_record(run_dir.daemon_record("nimbus"))
    return lock, ZooKeeperStore(run_dir, session.client)


def _end_lost(run_dir: RunDir, session: Session) -> None:
    """Kill the Nimbus that holds the lock if it is not listed in ZooKeeper."""
    holder = read_record(run_dir.daemon_record("nimbus"))
    if (
        holder is not None
        and session.has_lost(holder)
        and send_signal_proven(holder.pid, holder.started_ticks, signal.SIGKILL)
    ):
        log.warning("Nimbus (pid %d) was killed: its session with ZooKeeper is gone", holder.pid)
