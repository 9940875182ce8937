"""Nimbus's durable memory in ZooKeeper, where `squall up --zookeeper` has put it.

Guarantees
    * As of the embedded store: when a method returns, its change is stored, and all changes inside one `transaction`
      are one of ZooKeeper's. Of a topology's deaths the newest DEATHS_KEPT are kept, and all are counted.
    * Only the Nimbus that opened the store last changes it: to open it raises the version of its root, which every
      transaction checks. So what is held in memory is what is stored.
    * A change that ZooKeeper has not answered within BUSY_TIMEOUT_SECS is a StoreError that names it.
    * A new store is made only in a directory without traces of topologies.

Relies on: `submission.SUBMISSION_MAX_BYTES`, a quarter of what ZooKeeper takes; kazoo, which only this file and
`scheduler.nimbus.standby` import.
Threads: Nimbus's loop; kazoo has its own.

Layout::

    /squall/<id>/store                    the version; below it nodes of each topology, named by its number
    /squall/<id>/nimbus/<pid>-<start>     while the session of that Nimbus lasts
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException
from kazoo.handlers.threading import KazooTimeoutError

from squall.engine.errors import UsageError
from squall.ipc.private import replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord
from squall.scheduler.nimbus.store import BUSY_TIMEOUT_SECS, DELETED_KEPT, StoredTopology, StoreError, refuse_traces

VERSION = b"1"
SESSION_SECS = 10.0
"""A Nimbus that ZooKeeper has not heard of for so long gives way to the standby."""
TOLD_SECS = 1.0
"""A wait for ZooKeeper at the start that is longer is told in the log."""
POLL_SECS = 0.05
DEATHS_KEPT = 100
"""Per topology: each death writes the others again."""


class _Known(msgspec.Struct, frozen=True):
    """What outlives topologies."""

    next_number: int = 1
    deleted: list[str] = []


class _Deaths(msgspec.Struct, frozen=True):
    total: int = 0
    newest: list[RestartRecord] = []


_KNOWN = "known"
_KINDS: dict[str, type[msgspec.Struct]] = {"k": _Known, "t": TopologyRecord, "a": Assignment, "d": _Deaths}
"""First letter of a node's name -> what is in it."""


def put_in_zookeeper(
    run_dir: RunDir, hosts: str, tell: Callable[[str], None], is_over: Callable[[], bool] = lambda: False
) -> None:
    """Have a new directory's store in ZooKeeper from now on, once that answers. UsageError if a cluster runs there, or
    has its store elsewhere."""
    servers, parent = _parent_of(hosts)
    is_there = _is_there(run_dir, hosts)
    if not await_answer(hosts, tell, is_over) or is_there:
        return
    lock = run_dir.lock()
    try:
        if not _is_there(run_dir, hosts):
            replace_file(run_dir.zookeeper, f"{servers}\n{parent}/{os.urandom(6).hex()}\n".encode(), sync=True)
    finally:
        lock.release()


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


class ZooKeeperStore:
    """An open store, as `scheduler.nimbus.store.Store`. Close it, or use it as a context manager."""

    def __init__(self, run_dir: RunDir, client: KazooClient) -> None:
        """The caller holds the directory's lock, and has started the client, which is closed with the store."""
        hosts, path = place_of(run_dir)
        self._client = client
        self._root = f"{path}/store"
        self._name = f"store {self._root} in ZooKeeper at {hosts}"
        self._in_transaction = False
        with told(self._name):
            if client.exists(self._root) is None:
                refuse_traces(run_dir, self._name)
                client.create(self._root, VERSION, makepath=True)
            found, _ = client.get(self._root)
            if found != VERSION:
                raise StoreError(f"{self._name} has version {found!r:.20}, this Squall reads {VERSION!r}")
            self._turn = client.set(self._root, VERSION).version
            self._nodes: dict[str, Any] = {node: self._read(node) for node in client.get_children(self._root)}

    def __enter__(self) -> ZooKeeperStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session. May be called again."""
        close(self._client)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none if an error leaves it. An inner transaction joins the outer."""
        if self._in_transaction:
            yield
            return
        before, self._in_transaction = dict(self._nodes), True
        try:
            yield
            self._commit(before)
        except BaseException:
            self._nodes = before
            raise
        finally:
            self._in_transaction = False

    # ---- topologies ----

    def next_number(self) -> int:
        """The number of the next submitted topology."""
        return self._known.next_number

    def put_topology(self, record: TopologyRecord) -> None:
        """Add a topology, or replace its record."""
        with self.transaction():
            number = self._number(record.id)
            if number is None:
                number = self._known.next_number
                self._nodes[_KNOWN] = msgspec.structs.replace(self._known, next_number=number + 1)
            self._nodes[f"t{number}"] = record

    def delete_topology(self, topology_id: str) -> None:
        """Forget a topology, its assignment and its deaths; its id is kept as deleted."""
        with self.transaction():
            number = self._number(topology_id)
            for kind in "tad":
                self._nodes.pop(f"{kind}{number}", None)
            self.put_deleted(topology_id)

    def put_deleted(self, topology_id: str) -> None:
        """Note that the remains of this topology may be removed."""
        with self.transaction():
            if topology_id not in self._known.deleted:
                kept = [*self._known.deleted, topology_id][-DELETED_KEPT:]
                self._nodes[_KNOWN] = msgspec.structs.replace(self._known, deleted=kept)

    def deleted(self) -> set[str]:
        """Ids of deleted topologies, as far as they are kept."""
        return set(self._known.deleted)

    def topologies(self) -> list[StoredTopology]:
        """All topologies, in the order of their submission."""
        numbers = sorted(int(node[1:]) for node in self._nodes if node[0] == "t")
        return [
            StoredTopology(self._nodes[f"t{number}"], self._nodes.get(f"a{number}"), deaths.newest, deaths.total)
            for number in numbers
            for deaths in [self._deaths(number)]
        ]

    def put_assignment(self, assignment: Assignment) -> None:
        """Add or replace a topology's assignment."""
        number = self._number(assignment.topology_id)
        if number is not None:
            with self.transaction():
                self._nodes[f"a{number}"] = assignment

    # ---- deaths ----

    def add_restart(self, topology_id: str, restart: RestartRecord) -> None:
        """Add a death, or replace the one of the same slot and incarnation (when its replacement got ready)."""
        number = self._number(topology_id)
        if number is None:
            return
        deaths = self._deaths(number)
        newest, key = list(deaths.newest), (restart.slot, restart.incarnation)
        places = [place for place, death in enumerate(newest) if (death.slot, death.incarnation) == key]
        if places:
            newest[places[0]] = restart
        else:
            newest.append(restart)
        with self.transaction():
            self._nodes[f"d{number}"] = _Deaths(deaths.total + (not places), newest[-DEATHS_KEPT:])

    # ---- parts ----

    @property
    def _known(self) -> _Known:
        known: _Known = self._nodes.get(_KNOWN, _Known())
        return known

    def _deaths(self, number: int) -> _Deaths:
        deaths: _Deaths = self._nodes.get(f"d{number}", _Deaths())
        return deaths

    def _number(self, topology_id: str) -> int | None:
        found = (int(name[1:]) for name, node in self._nodes.items() if name[0] == "t" and node.id == topology_id)
        return next(found, None)

    def _read(self, node: str) -> Any:
        body, _ = self._client.get(f"{self._root}/{node}")
        try:
            return msgspec.msgpack.decode(body, type=_KINDS[node[0]])
        except (KeyError, ValueError) as error:
            raise StoreError(f"{self._name} is damaged: node {node} does not decode: {error}") from error

    def _commit(self, before: dict[str, Any]) -> None:
        """Store what is other than `before`."""
        request = self._client.transaction()
        request.check(self._root, self._turn)
        for node in before.keys() - self._nodes.keys():
            request.delete(f"{self._root}/{node}")
        for node, content in self._nodes.items():
            if before.get(node) is not content:
                change = request.set_data if node in before else request.create
                change(f"{self._root}/{node}", msgspec.msgpack.encode(content))
        with told(self._name, ", so the change is made, or not"):
            results = request.commit_async().get(timeout=BUSY_TIMEOUT_SECS)
        if failed := [type(result).__name__ for result in results if isinstance(result, Exception)]:
            opened = isinstance(results[0], BadVersionError)
            raise StoreError(f"{self._name}: {'another Nimbus has opened it since' if opened else ', '.join(failed)}")
