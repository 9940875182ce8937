"""The directory through which a Structured Streaming query feeds a running topology, batch by batch.

::

    INLET/_schema                    the columns of all batches, made once
    INLET/_tmp-<token>-<query>-<n>/  a batch that Spark is writing
    INLET/<query>-<n>/*.parquet      a whole batch, until it is acked
    INLET/<query>-<n>/_planned       when Spark planned it
    INLET/_claims/*.claim            how far the spout's tasks are in it
    INLET/_reader                    which spout reads, see `pipeline.inlet_reader`
    INLET/_acked/<query>             the number of the last batch of a query that is acked, and when Spark planned it

Guarantees, whoever is killed whenever: a batch gets its name when it is whole, so a spout sees all of it or nothing; it
is in `_acked` before its files go, so it is never fed again; claims go last, so a task that takes a range of a batch
afterwards can tell: its file is gone.

A query's id and a number do not name a batch for ever: who removes the `offsets` of a checkpoint (as Spark advises
where it cannot go on) keeps the id, and the numbers begin anew, with other rows. The time at which Spark planned a
batch is in its checkpoint, so it stays the same for as long as the batch does.

Relies on a query's batches being fed one after the other, and on `pipeline.inlet_reader` for one topology. Imports no
Spark. Thread: each object one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.claims import Claims
from squall.pipeline.inlet_reader import READER_NAME
from squall.pipeline.shares import Claim
from squall.pipeline.sources import Listed, ParquetDirectory

SCHEMA_NAME = "_schema"
CLAIMS_NAME = "_claims"
ACKED_NAME = "_acked"
PLANNED_NAME = "_planned"
_BATCH = re.compile(r"(?:_(?:tmp-[0-9a-f]{16}|old)-)?([0-9a-f-]{36})-(\d{10})")
_OURS = frozenset({SCHEMA_NAME, CLAIMS_NAME, ACKED_NAME, READER_NAME})


class Inlet:
    """The directory, as both sides know it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make it, unless it is there. UsageError if something else lies there."""
        self.path = Path(path).absolute()
        self.claims = self.path / CLAIMS_NAME
        try:
            names = os.listdir(self.path) if self.path.exists() else []
            others = sorted(name for name in names if name not in _OURS and not _BATCH.fullmatch(name))
            if others:
                raise UsageError(f"{self.path} holds {others[0]!r}, which is not of an inlet; choose another directory")
            for folder in (self.claims, self.path / ACKED_NAME):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be an inlet: {error.strerror} ({error.filename})") from error

    def fix_columns(self, columns: str) -> None:
        """Fix the columns, unless that was done. UsageError if they are others."""
        path = self.path / SCHEMA_NAME
        if not path.exists():
            draft = self.claims / f"{secrets.token_hex(8)}.new"
            draft.write_text(columns, encoding="utf-8")
            try:
                os.link(draft, path)
            except FileExistsError:
                pass  # another query was first
            finally:
                draft.unlink()
        if (fixed := path.read_text(encoding="utf-8")) != columns:
            raise UsageError(f"the query has the columns {columns}, but inlet {self.path} has {fixed}")


class Batch:
    """A batch of a query, as its feeder sees it."""

    def __init__(self, inlet: Inlet, query: str, number: int, planned_ms: int | None = None) -> None:
        """`planned_ms`: when Spark planned it, by its checkpoint. None if that is not known."""
        name = f"{query}-{number:010d}"
        if not _BATCH.fullmatch(name):
            raise UsageError(f"a query has the id {repr_of(query)}, its batch is {number}; allowed: a UUID, 0 and more")
        self.inlet, self.query, self.number, self._planned_ms = inlet, query, number, planned_ms
        self.path = inlet.path / name
        self._acked = inlet.path / ACKED_NAME / query
        self._rows: dict[str, int] = {}
        """Of each file, by its name in the inlet."""

    @property
    def is_acked(self) -> bool:
        """Whether it was acked in this life of the query or an earlier one. Call `check` before."""
        last = self._last_acked()
        return last is not None and last[0] >= self.number

    def check(self) -> None:
        """UsageError if the query's checkpoint is not the one with which it has fed this inlet so far: the batch would
        be taken for another one that was acked, or those before it were never here."""
        last = self._last_acked()
        known = [last[1]] if last is not None and last[0] == self.number else []
        if self.path.exists():
            known.append(_integer(self.path / PLANNED_NAME))
        others = [then for then in known if then is not None and self._planned_ms is not None]
        if (last is not None and last[0] > self.number) or any(then != self._planned_ms for then in others):
            raise UsageError(
                f"the query's checkpoint was set back to batch {self.number}, which inlet {self.inlet.path} had "
                "before, with other rows; to begin anew, remove the whole checkpoint, not parts of it"
            )
        if last is None and self.number and not self.path.exists():
            raise UsageError(
                f"the query begins with batch {self.number}, and inlet {self.inlet.path} has had none of it before: "
                "its checkpoint is of another inlet or sink, or the inlet was removed; begin with a new checkpoint "
                "(whose first batch is 0), and feed each batch, an empty one too"
            )

    def _last_acked(self) -> tuple[int, int | None] | None:
        """The number of the query's last batch that was acked, and when Spark planned it."""
        try:
            numbers = [int(word) for word in self._acked.read_text().split()]
            return numbers[0], numbers[1] if len(numbers) > 1 else None
        except FileNotFoundError:
            return None
        except (ValueError, IndexError) as error:
            raise ClusterError(f"{self._acked} holds no number; without it, a batch is fed again") from error

    def new_draft(self) -> Path:
        """A name to write the batch under. Not the same twice: what a killed driver began may still be going on."""
        return self.path.with_name(f"_tmp-{secrets.token_hex(8)}-{self.path.name}")

    def publish(self, draft: Path) -> None:
        if self._planned_ms is not None:
            (draft / PLANNED_NAME).write_text(str(self._planned_ms))
        for file in [*draft.glob("*.parquet"), *draft.glob(PLANNED_NAME), draft]:
            _sync(file)
        draft.rename(self.path)
        _sync(self.inlet.path)

    def progress(self) -> tuple[int, int]:
        """Rows that are acked, and all. Call it when the batch was published."""
        if not self._rows:
            from pyarrow import parquet

            for file in self.path.glob("*.parquet"):
                self._rows[f"{self.path.name}/{file.name}"] = parquet.read_metadata(file).num_rows
        claims = InletClaims(self.inlet, 0)
        acked = sum(claim.position - claim.start for part in self._rows for claim in claims.of(part))
        return acked, sum(self._rows.values())

    def note_acked(self) -> None:
        """Keep that all is acked, over a loss of power too."""
        draft = self._acked.with_name(f"_new-{secrets.token_hex(8)}")
        draft.write_text(f"{self.number}" if self._planned_ms is None else f"{self.number} {self._planned_ms}")
        _sync(draft)
        draft.rename(self._acked)
        _sync(self._acked.parent)

    def clear(self) -> None:
        """Remove what is left of acked batches of this query, and of drafts of killed drivers."""
        for path in sorted(self.inlet.path.iterdir()):
            found = _BATCH.fullmatch(path.name)
            if not found or found[1] != self.query:
                continue
            if path.name.startswith("_tmp-"):
                shutil.rmtree(path, ignore_errors=True)
            elif Batch(self.inlet, self.query, int(found[2])).is_acked:
                self._remove(path)

    def _remove(self, path: Path) -> None:
        name = path.name.removeprefix("_old-")
        old = path.with_name(f"_old-{name}")
        if path != old:
            path.rename(old)
        # From here on, a task that claims a range finds no file for it.
        claims = InletClaims(self.inlet, 0)
        claims.forget(f"{name}/{file.name}" for file in old.glob("*.parquet"))
        shutil.rmtree(old)


class InletClaims(Claims):
    """Claims on batches that may be acked and removed at any time."""

    def __init__(self, inlet: Inlet, task: int) -> None:
        super().__init__(inlet.claims, task)
        self._inlet = inlet

    def load(self) -> list[Claim]:
        """As of a feed; those whose file is gone are removed: their task was killed in `make`."""
        found = self._read_all(self.directory.glob("*.claim"))
        gone = [claim for claim in found if not self._has_file(claim)]
        for claim in gone:
            self._path(claim).unlink(missing_ok=True)
        return [claim for claim in found if claim not in gone]

    def of(self, part: str) -> list[Claim]:
        """The claims of one file."""
        return self._read_all(self.directory.glob(f"{self.digest(part)}-*.claim"))

    def make(self, claim: Claim) -> Claim:
        """As of a feed; a range whose file is gone counts as done."""
        try:
            made = super().make(claim)
        except ClusterError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            made = claim  # there was one, which is removed by now
        if self._has_file(claim):
            return made
        self._path(claim).unlink(missing_ok=True)
        return claim._replace(position=claim.stop)

    def store(self, claim: Claim) -> None:
        try:
            super().store(claim)
        except FileNotFoundError:
            if self._has_file(claim):
                raise

    def forget(self, parts: Iterable[str]) -> None:
        for part in parts:
            for path in self.directory.glob(f"{self.digest(part)}-*.claim"):
                path.unlink(missing_ok=True)

    def _has_file(self, claim: Claim) -> bool:
        return (self._inlet.path / claim.part).exists()

    def _read_all(self, paths: Iterable[Path]) -> list[Claim]:
        found = []
        for path in sorted(paths):
            try:
                found.append(self._read(path))
            except ClusterError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return found


class InletSource(ParquetDirectory):
    """The files of the batches that are not removed yet."""

    def _list(self) -> list[Listed]:
        found = [*super()._list()]
        # Names do not come again, so those that are gone can be forgotten.
        self._known.intersection_update(listed.name for listed in found)
        return found

    def _check(self, name: str) -> int:
        try:
            return super()._check(name)
        except UsageError:
            if (self.path / name).exists():
                raise
            return 0  # acked and removed meanwhile


def _integer(path: Path) -> int | None:
    """What a file holds; None if there is none, as of a batch of an earlier Squall."""
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ClusterError(f"{path} holds no number; remove it if nobody has touched the checkpoint") from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
