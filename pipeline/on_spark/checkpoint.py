"""The checkpoint of a topology on Spark: a directory that the driver and every executor see.

::

    DIR/topology.json        what runs here; another topology is refused
    DIR/control.pickle       the last batch that is done; replaced in one step
    DIR/batches/N-xxxx/      the rows of a batch, Parquet, written by Spark
    DIR/spark/               the checkpoint of the streaming query
    DIR/state/               the state directories of tasks
    DIR/dead-letters.jsonl

Guarantees: a batch is done when `control.pickle` names it, and not before; whatever dies, the next run goes on after
it. Each dead letter is in the file once: what a batch that was not done wrote there is cut off. One run at a time (a
lock that ends with its process). Relies on a file system with atomic renames.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import repr_of, text_of_error
from squall.pipeline.on_spark.batch_control import Control

VERSION = 5
SHOWN_CHARS = 400
_IDENTITY, _CONTROL, _LETTERS, _LOCK = "topology.json", "control.pickle", "dead-letters.jsonl", "lock"


class Checkpoint:
    """An open checkpoint. A context manager, which gives up the lock."""

    def __init__(self, path: Path, topology: Topology, name: str, arguments: Sequence[str], ackers: int) -> None:
        """UsageError if it is another topology's, is in use, or cannot be read. `arguments`: what the topology
        was made with. `ackers`: how many it has; the numbers of tasks, by which all is stored, depend on it."""
        self.path = path.absolute()
        self.spark, self.state, self.letters = (self.path / name for name in ("spark", "state", _LETTERS))
        self._identity = {**identity_of(topology, name, arguments), "ackers": ackers}
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            others = set(os.listdir(self.path)) - {_LOCK, f"{_IDENTITY}.new"}
            if others and _IDENTITY not in others:
                raise UsageError(
                    f"--checkpoint {path} holds {repr_of(min(others))}, and no checkpoint; choose another directory"
                )
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"--checkpoint {path} cannot be used: {error.strerror}") from error
        try:
            self._take_lock()
            self._check()
            self.control = self._load()
            self._cut_letters()
        except BaseException:
            os.close(self._lock)
            raise
        (self.path / "batches").mkdir(exist_ok=True)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._lock)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"--checkpoint {self.path} is in use by another run") from None

    def _check(self) -> None:
        """Refuse what another topology left, or another version."""
        path = self.path / _IDENTITY
        if not path.exists():
            _replace(path, json.dumps({"version": VERSION, **self._identity}, indent=1).encode())
            return
        try:
            known = json.loads(path.read_bytes())
            version = known.pop("version")
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise UsageError(f"{path} cannot be read: {text_of_error(error)}; choose another directory") from error
        if version != VERSION:
            raise UsageError(f"--checkpoint {self.path} has version {version}; this version of Squall reads {VERSION}")
        wanted = json.loads(json.dumps(self._identity))
        for key in wanted:
            if known.get(key) != wanted[key]:
                was, now = (repr_of(one, SHOWN_CHARS) for one in (known.get(key), wanted[key]))
                raise UsageError(
                    f"--checkpoint {self.path} is of another topology: its {key} are {was}, not {now}; choose another "
                    "directory"
                )

    def _load(self) -> Control:
        path = self.path / _CONTROL
        if not path.exists():
            return Control()
        try:
            control: Control = pickle.loads(path.read_bytes())
        except Exception as error:
            raise ClusterError(f"{path} cannot be read: {text_of_error(error)}") from error
        return control

    def _cut_letters(self) -> None:
        """Remove the letters of a batch that was not done: it is run again."""
        if self.letters.exists() and self.letters.stat().st_size > self.control.letters_bytes:
            os.truncate(self.letters, self.control.letters_bytes)

    def new_batch(self, number: int) -> Path:
        """Where the rows of a batch may be written: nowhere that an earlier attempt may still write to."""
        return self.path / "batches" / f"{number}-{secrets.token_hex(4)}"

    def at(self, name: str) -> Path:
        return self.path / "batches" / name

    def done(self, control: Control, letters: list[dict[str, Any]]) -> None:
        """A batch is done."""
        if letters:
            with self.letters.open("ab") as file:
                for letter in letters:
                    file.write(json.dumps({"batch": control.number, **letter}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                control = replace(control, letters_bytes=file.tell())
        _replace(self.path / _CONTROL, pickle.dumps(control, 5))
        self.control = control
        keep = {control.spouts_at, control.bolts_at}
        for entry in (self.path / "batches").iterdir():
            if entry.name not in keep:
                shutil.rmtree(entry, ignore_errors=True)


def identity_of(topology: Topology, name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What makes a topology the same one."""
    return {
        "name": name,
        "arguments": list(arguments),
        "components": {
            spec.id: {
                "kind": spec.kind, "class": type(spec.component).__qualname__, "tasks": spec.tasks,
                "outputs": {stream: list(shape.fields) for stream, shape in spec.outputs.items()},
                "inputs": [[one.source, one.stream, one.grouping, *one.fields] for one in spec.subscriptions],
            }
            for spec in topology.components.values()
        },
    }


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
