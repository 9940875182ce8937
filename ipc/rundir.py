"""The run directory: everything that one cluster has on disk, where only its owner can enter.

Guarantees
    * A `RunDir` that was created or opened is a real directory of ours (0700) and holds the cluster's key (0600).
    * `lock()` is held by one process at a time and ends with that process, however it dies.
    * Every socket path that it returns fits a Unix socket address; a longer one is refused by name.
    * A name leads to a path below the folder of its kind, never to the folder itself or out of it, or is refused.

Relies on: `ipc.run_parent` for anonymous directories and their sweep; flock, which the kernel drops with its holder.

The table of paths is in `RunDir`. Beside them: `creator` (of an anonymous directory, see `ipc.run_parent`), `starting`
(the right to start a cluster), `nimbus.db.copy`, `text.seed`, and what the folders of the table hold.

A standing cluster that was given no directory has two: sockets, boards, notes about workers and the key are in the
user's runtime directory, which is emptied at logout or reboot; lock, store, code, variables, state, accounts and logs
are in the durable one, to which the link RUN/durable leads and whose file `run-dir` leads back. Any other cluster has
one for all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import re
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, ParamSpec
from urllib.parse import unquote

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.files import locked
from squall.ipc import hash_seed
from squall.ipc.private import make_directory, naming
from squall.ipc.run_parent import (
    BACK_POINTER,
    CREATOR_FILE,
    LOCK_FILE,
    STORE,
    check_private,
    default_parent,
    is_standing,
    make_anonymous,
    make_durable,
    remove_tree,
    try_flock,
)

UNKNOWN = "unknown"
"""Instead of the pid of a process that has not written it yet."""
KEY_BYTES = 32
SOCKET_PATH_MAX_BYTES = 107
"""`sun_path` of a Unix socket address has 108 bytes; the last is NUL."""
FILE_NAME_MAX_BYTES = 255
DURABLE_LINK = "durable"
SET_ASIDE = ".set-aside-"
LETTER_REQUESTS = ".given-back"
"""Folder, in a topology's state directory, of the dead letters that were asked back."""
LOCK_PATIENCE_SECS = 0.25
"""How long `lock` retries: a sweep or `lock_holder` holds the lock for microseconds, Nimbus for its life."""

_SUBDIRECTORIES = ("n", "s", "boards")
_DURABLE = ("code", "state", "logs")
_KEY_TO_BE = re.compile(r"key\.[0-9a-f]{8}")
_UNSAFE_IN_FILE_NAMES = re.compile(r"[%/\x00-\x1f\x7f]")

P = ParamSpec("P")


class Presence:
    """Tells whether a directory is still the one that it was when this object was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = path.stat()

    def is_gone(self) -> bool:
        """Whether the directory was removed or replaced."""
        try:
            return not os.path.samestat(self._found, self._path.stat())
        except FileNotFoundError:
            return True


class _Path(str):
    """A row of the table of paths; `durable/` in front: in the durable directory."""

    __slots__ = ()

    def __get__(self, run_dir: RunDir, _: type[RunDir]) -> Path:
        return run_dir.at(self)


class _Named(str, Generic[P]):
    """A row with names, for which it is asked, in the places of its braces."""

    __slots__ = ()

    def __get__(self, run_dir: RunDir, _: type[RunDir]) -> Callable[P, Path]:
        return partial(run_dir.at, self)


class RunDir:
    """Paths of one cluster. The constructor checks nothing: use `create` or `open`. Process: any."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(path))
        self._creator_fd = -1
        self._durable: Path | None = None

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    # ---- life ----

    @classmethod
    def create(cls, path: str | Path | None = None, hash_seed: int | None = None) -> RunDir:
        """Make a run directory, or take over the one at `path`. None: make an anonymous one in the default parent.
        `hash_seed`: that of a new one, by default a drawn one.

        An anonymous one belongs to this process: once the process is gone and Nimbus too, `sweep_stale` removes it.
        """
        if path is None:
            made, creator_fd = make_anonymous(default_parent())
            run_dir = cls(made)
            run_dir._creator_fd = creator_fd
        else:
            run_dir = cls(path)
            run_dir.socket_length_check()
            _make_named(run_dir.path)
        try:
            run_dir.socket_length_check()
            # Several programs may make the same one at once; none must find it half made.
            with naming(run_dir.path), locked(run_dir.path, flags=os.O_NOFOLLOW):
                run_dir._fill(hash_seed)
        except BaseException:
            if path is None:
                run_dir.remove()
            raise
        return run_dir

    def _fill(self, seed: int | None) -> None:
        """Make the missing parts of the directory. The caller excludes others meanwhile."""
        _check_ours(self.path)
        if is_standing(self.path):
            self._link_durable()
        _make_key(self.key_file)
        for name in _SUBDIRECTORIES:
            (self.path / name).mkdir(mode=0o700, exist_ok=True)
        make_directory(self.durable)
        for name in _DURABLE:
            (self.durable / name).mkdir(mode=0o700, exist_ok=True)
        store = self.zookeeper if self.zookeeper.exists() else self.nimbus_db
        hash_seed.make(self.durable / hash_seed.FILE_NAME, store, seed)

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """The existing run directory at `path`; UsageError if it is none, not ours, or open to others."""
        run_dir = cls(path)
        check_private(run_dir.path)
        if not run_dir.key_file.exists():
            raise UsageError(f"{run_dir.path} is not a run directory: it has no file 'key'")
        run_dir.socket_length_check()
        return run_dir

    def close(self) -> None:
        """Release an anonymous directory without removing it: `sweep_stale` may from now on. May be called again."""
        if self._creator_fd >= 0:
            os.close(self._creator_fd)
            self._creator_fd = -1

    def remove(self) -> None:
        """Delete the directory and its content. When every process has stopped."""
        self.close()
        remove_tree(self.path)

    # ---- lock and key ----

    def lock(self) -> io.FileIO:
        """Hold the directory for this process until it closes the file. UsageError naming the holder if another has it.
        Called by Nimbus."""
        deadline = time.monotonic() + LOCK_PATIENCE_SECS
        while True:
            fd = try_flock(self.lock_file)
            if fd is not None:
                self._write_locker(fd)
                return io.FileIO(fd)
            if time.monotonic() >= deadline:
                raise UsageError(f"run directory {self.path} is in use by pid {self._locker()}")
            time.sleep(0.01)

    def _write_locker(self, fd: int) -> None:
        """Overwrite in place: on a full disk, a file that was truncated first would find no room."""
        text = f"{os.getpid()}\n".encode()
        try:
            os.ftruncate(fd, os.pwrite(fd, text, 0))
        except OSError as error:
            os.close(fd)
            raise ClusterError(f"cannot write {self.lock_file}: {error.strerror}") from error

    def lock_holder(self) -> str | None:
        """Pid of the Nimbus that holds the directory, UNKNOWN until it has written it; None if no Nimbus does."""
        try:
            with locked(self.lock_file, fcntl.LOCK_SH | fcntl.LOCK_NB):
                return None
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return self._locker()

    def _locker(self) -> str:
        """For messages only: a holder that was killed leaves its pid behind until the next one has written its own, and
        the number may belong to another process by now. Never signal it."""
        try:
            said = self.lock_file.read_bytes().strip()
        except FileNotFoundError:
            return UNKNOWN
        return said.decode() if said.isdigit() else UNKNOWN

    def key(self) -> bytes:
        """The secret that signs control frames."""
        try:
            key = self.key_file.read_bytes()
        except FileNotFoundError:
            raise ClusterError(f"run directory {self.path} has lost its file 'key'; was the cluster stopped?") from None
        if len(key) != KEY_BYTES:
            raise ClusterError(f"key file {self.key_file} has {len(key)} bytes, must have {KEY_BYTES}")
        return key

    def hash_seed(self) -> int:
        """The seed by which all processes of the cluster hash text."""
        return hash_seed.read(self.durable / hash_seed.FILE_NAME)

    # ---- paths ----

    @property
    def durable(self) -> Path:
        """The directory of all files that must outlive a reboot."""
        if self._durable is None:
            try:
                self._durable = Path(os.readlink(self.path / DURABLE_LINK))
            except (FileNotFoundError, NotADirectoryError):
                # Do not remember it: the directory may not have been made yet.
                return self.path
        return self._durable

    def _link_durable(self) -> None:
        """Link to the durable directory, and back. A run directory that was made without one stays as it is."""
        if os.path.lexists(self.path / DURABLE_LINK) or (self.path / STORE).exists():
            return
        durable = make_durable()
        temporary = durable / f"{BACK_POINTER}.{os.urandom(4).hex()}"
        try:
            with naming(temporary):
                temporary.write_bytes(os.fsencode(f"{self.path}\n"))
            temporary.rename(durable / BACK_POINTER)
        finally:
            temporary.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(durable, self.path / DURABLE_LINK)

    def at(self, row: str, *names: object) -> Path:
        """The path of a row of the table below, with `names` in the places of its braces."""
        inside = row.removeprefix(f"{DURABLE_LINK}/")
        parts = inside.format(*map(_escaped, names)).split("/")
        return (self.path if inside == row else self.durable).joinpath(*map(_checked, parts))

    key_file = _Path("key")
    lock_file = _Path(f"durable/{LOCK_FILE}")
    """Held by Nimbus."""
    nimbus_socket = _Path("nimbus.sock")
    nimbus_db = _Path(f"durable/{STORE}")
    zookeeper = _Path("durable/zookeeper")
    """Instead of `nimbus_db`: where in ZooKeeper the store is (see `scheduler.nimbus.zookeeper`)."""
    keeper_lock = _Path("keeper.lock")
    """Held by the one keeper; left behind by one that was killed."""
    daemon_record = _Named[str]("daemons/{}")
    """Of a daemon by name: which process it is."""
    ui_token = _Path("ui.token")
    """The secret of the web page (see `ui.access`)."""
    ui_address = _Path("ui.json")
    """Where the web page is, and which process serves it."""
    ui_history = _Path("durable/ui-history.db")
    """The rings of `squall.ui.history`: what it has seen in the last day."""
    faults_in_force = _Path("faults.json")
    """What is broken on purpose now (see `scheduler.faults.in_force`)."""
    fault_record = _Path("durable/faults.jsonl")
    """What was, and when."""
    code = _Path("durable/code")
    """Blobs of topologies, by SHA-256."""
    environments = _Path("durable/env")
    environment = _Named[str]("durable/env/{}")
    """Of a topology by id: the variables that its submitter gave, which may be secrets."""
    boards = _Path("boards")

    # Logs: of "nimbus", "keeper" or, for example, "supervisor-node-1"; of workers, by topology id, node and port.

    logs = _Path("durable/logs")
    daemon_log = _Named[str]("durable/logs/{}.log")
    daemon_deaths = _Path("durable/logs/daemon-deaths.jsonl")
    history = _Named[str]("durable/logs/history-{}.jsonl")
    worker_logs = _Named[str]("durable/logs/{}")
    worker_log = _Named[str, str, int]("durable/logs/{}/{}-{}.log")
    close_errors = _Named[str, int]("durable/logs/{}/{}.close-errors")
    """Of a topology by id and a worker by number: what tasks raised in `close` and `cleanup`. Outlives the topology, as
    its logs do."""

    # Of a topology by id, with a worker by number and incarnation.

    metrics = _Named[str]("durable/metrics/{}")
    """What components measure themselves."""
    watches = _Named[str]("durable/watches/{}")
    """What is watched of it, and what was seen (see `scheduler.records.watches`)."""
    failures = _Named[str]("durable/failures/{}")
    """Its last failures, a file for each worker."""
    stopped = _Named[str]("durable/failures/{}/stopped")
    """Says why it has stopped at a fault of its set-up."""
    last_words = _Named[str, int, int]("durable/failures/{}/last-words-{}-{}")

    # Of all topologies of a name, which it outlives: state of tasks, and dead letters.

    states = _Path("durable/state")
    topology_state = _Named[str]("durable/state/{}")
    set_aside = _Named[str, str](f"durable/state/{{}}/{SET_ASIDE}{{}}")
    """State that a topology, by id, which begins anew has found and set aside (see `scheduler.nimbus.nimbus_files`)."""
    attempts = _Named[str, str, int]("durable/state/{}/.attempts/{}-{}")
    """Failures for each message of a spout's task."""

    def board(self, topology_id: str, version: int = 1) -> Path:
        """The status board of one assignment of a topology: a board is made for a number of workers."""
        return self.at("boards/{}" if version == 1 else "boards/{}.{}", topology_id, version)

    def node_socket(self, node: str) -> Path:
        """Of a supervisor."""
        return check_socket_path(self.at("n/{}.sock", node))

    def worker_socket(self, topology_id: str, version: int, node: str, port: int, incarnation: int) -> Path:
        """The path names the incarnation too: a frame must not reach a predecessor that still lives."""
        tag = assignment_tag(topology_id, version)
        return check_socket_path(self.at("s/{}-{}-{}-{}", tag, node, port, incarnation))

    def worker_sockets(self, node: str, port: int) -> list[Path]:
        """Socket files of a slot's workers, of every topology and incarnation."""
        name = re.compile(rf"[0-9a-f]{{8}}-{re.escape(_escaped(node))}-{port}-[0-9]+")
        return [path for path in sorted((self.path / "s").glob("*")) if name.fullmatch(path.name)]

    def remove_sockets(self) -> None:
        """Remove the sockets that killed daemons and workers have left. Called when no process of the cluster runs."""
        for path in (self.nimbus_socket, *self.path.glob("n/*.sock"), *self.path.glob("s/*")):
            path.unlink(missing_ok=True)

    def socket_length_check(self, node: str = "node-99") -> None:
        """UsageError unless the longest socket path that `node` may need fits. Called before anything starts."""
        check_socket_path(self.nimbus_socket)
        self.node_socket(node)
        self.worker_socket("", 1, node, 65535, 999_999)


def assignment_tag(topology_id: str, version: int) -> str:
    """Eight hex digits that stand for one version of a topology's assignment in paths, for which its id is too long."""
    return hashlib.sha256(f"{topology_id}\0{version}".encode()).hexdigest()[:8]


def check_socket_path(path: Path) -> Path:
    """`path`, or UsageError if it is too long for a Unix socket."""
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_MAX_BYTES:
        raise UsageError(
            f"socket path {path} is {size} bytes long, the system allows {SOCKET_PATH_MAX_BYTES}: "
            f"choose a run directory with a shorter path"
        )
    return path


def _make_named(path: Path) -> None:
    try:
        make_directory(path, exist_ok=False)
    except FileExistsError:
        ours = path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
        if ours and not any(path.iterdir()):
            _close_to_others(path)
        check_private(path)


def _close_to_others(path: Path) -> None:
    """Make an empty directory private, unless its mode says that others share it, as /dev/shm: they would lose it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IWOTH | stat.S_ISVTX | stat.S_ISGID):
        raise UsageError(f"{path} has mode {mode:04o}, so others use it too: choose a directory in it, or another")
    path.chmod(0o700)


def _check_ours(path: Path) -> None:
    """UsageError if the directory is neither empty nor a run directory."""
    # If only the key is lost, make another. Whoever starts a cluster has checked that no process uses the old one.
    ours = all((path / name).is_dir() for name in _SUBDIRECTORIES)
    # Files that are made before the key, left by a process that was killed between.
    begun = (CREATOR_FILE, DURABLE_LINK)
    others = [name for name in os.listdir(path) if name not in begun and not _KEY_TO_BE.fullmatch(name)]
    if others and not ours and not (path / "key").is_file():
        raise UsageError(f"{path} is neither empty nor a run directory: choose another")


def _make_key(path: Path) -> None:
    """Write the key unless there is one, atomically."""
    if path.exists():
        return
    temporary = path.with_name(f"key.{os.urandom(4).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with naming(path):
            os.write(fd, os.urandom(KEY_BYTES))
        os.link(temporary, path)
    finally:
        os.close(fd)
        temporary.unlink()


def named_by(file_name: str) -> str:
    """The name, for example of a topology, that a file or folder of a run directory has."""
    return unquote(file_name)


def _escaped(name: object) -> str:
    return _UNSAFE_IN_FILE_NAMES.sub(lambda match: f"%{ord(match[0]):02x}", str(name))


def _checked(name: str) -> str:
    """One component of a path. UsageError if it would lead to another directory, or is too long for the file system."""
    if name in ("", ".", ".."):
        raise UsageError(f"{name!r} cannot be a name: it would mean a whole directory of the cluster")
    size = len(os.fsencode(name))
    if size > FILE_NAME_MAX_BYTES:
        limit = FILE_NAME_MAX_BYTES
        raise UsageError(f"name {name!r:.80} is too long: as a file name it takes {size} bytes, of {limit}")
    return name
