"""A log that is written and rotated in every way, a LogReader that is killed meanwhile, and what must come of it.

`RotatedLog(seed, directory).run()` raises AssertionError if a mark that was written is neither done at the end, nor
excused by the loss of its file before it could be read; or if such a loss was not reported; or if two lines had one
id. A mark is done if it was given and acked, or was given in the last life.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from squall.engine.clock import NS_PER_SEC
from squall.pipeline.log_reader import LogReader

LOOK_NS = NS_PER_SEC // 10
QUIET_SECS = 2.0
STEPS = 60
#: Longer than what a reader waits for, one thing after the other.
DRAIN_LOOKS = 250
OPERATIONS = {
    "write": 10, "tear": 3, "late": 3, "look": 8, "wait": 3, "rename": 4, "copy_and_cut": 3, "slow_copy": 1,
    "ack": 4, "kill": 2, "death": 1, "compress": 1, "remove": 1, "cut": 1, "replace": 1,
}  # fmt: skip


@dataclass
class RotatedLog:
    seed: int
    directory: Path
    done: list[tuple[tuple[int, int], set[str]]] = field(default_factory=list)
    """Of each line that was given in this life, or was acked: its id and its marks."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.log = self.directory / "access.log"
        self.state = self.directory.parent / f"state-{self.seed}"
        self.names = self.random.choice(["down", "up", "date"])
        self.header = self.random.choice(["", "", "#Fields: a b\n"])
        self.written: list[str] = []
        self.excused: set[str] = set()
        """Marks whose file was lost before they could be read."""
        self.untold: set[str] = set()
        """Those of them of which the reader could know nothing."""
        self.fragile: set[str] = set()
        """Marks that only a file without a name still has, which the reader holds."""
        self.reports: list[str] = []
        self.texts: dict[tuple[int, int], bytes] = {}
        self.acked: set[tuple[int, int]] = set()
        self.rotations = self.now_ns = 0
        self.has_lost = False
        """Of what is gone the reader may not know whether it had read all."""
        self.seen = 0
        """So many marks had been written at the last look."""
        self.trail: list[str] = []
        self.reader: LogReader | None = self.open()

    def open(self) -> LogReader:
        return LogReader(self.log, self.state, QUIET_SECS, self.reports.append)

    def run(self) -> None:
        names, weights = list(OPERATIONS), list(OPERATIONS.values())
        for _ in range(STEPS):
            name = self.random.choices(names, weights)[0]
            self.trail.append(name)
            getattr(self, name)()
        self.reader = self.reader or self.open()
        self.append(self.log, f"{self.mark()}\n")
        for _ in range(DRAIN_LOOKS):
            self.look_once()
        self.reader.close()
        self.check()

    def check(self) -> None:
        missing = [mark for mark in self.written if mark not in self.done_marks]
        assert not set(missing) - self.excused, self.trail
        assert self.reports or not set(missing) - self.untold, self.trail
        assert self.has_lost or not self.reports, self.trail

    @property
    def done_marks(self) -> set[str]:
        return set().union(*(marks for _, marks in self.done))

    # The writer.

    def mark(self) -> str:
        self.written.append(f"<{len(self.written)}>")
        return self.written[-1]

    def append(self, path: Path, text: str) -> None:
        with path.open("a") as file:
            if path == self.log and not file.tell():
                file.write(self.header)
            file.write(text)

    def write(self) -> None:
        filling = "x" * self.random.choice([0, 0, 50, 3000])
        for _ in range(self.random.choice([1, 1, 2, 5])):
            self.append(self.log, f"{self.mark()} {filling}\n")

    def tear(self) -> None:
        self.append(self.log, self.mark())

    def late(self) -> None:
        """To the newest of the renamed ones."""
        if rotated := self.rotated():
            self.append(rotated[-1], self.mark() + self.random.choice(["", "\n", "\n"]))

    # Who rotates.

    def rotated(self) -> list[Path]:
        """The oldest first."""
        found = [path for path in self.directory.iterdir() if re.fullmatch(r"access\.log[.-]\d+", path.name)]
        return sorted(found, key=lambda path: int(path.name[11:]), reverse=self.names == "down")

    def free_name(self) -> Path:
        self.rotations += 1
        if self.names == "down":
            for path in self.rotated():
                path.rename(self.log.with_name(f"access.log.{int(path.name[11:]) + 1}"))
            return self.log.with_name("access.log.1")
        if self.names == "up":
            return self.log.with_name(f"access.log.{self.rotations}")
        return self.log.with_name(f"access.log-{20261100 + self.rotations}")

    def rename(self) -> None:
        if self.log.exists():
            self.log.rename(self.free_name())
            if self.random.random() < 0.7:
                self.append(self.log, f"{self.mark()}\n")

    def copy_and_cut(self) -> None:
        if self.log.exists():
            shutil.copy(self.log, self.free_name())
            if self.random.random() < 0.3:
                self.look_once()
            os.truncate(self.log, 0)
            if self.random.random() < 0.5:
                self.write()

    def slow_copy(self) -> None:
        """Others see half of it."""
        if self.log.exists():
            content, copy = self.log.read_bytes(), self.free_name()
            with copy.open("wb", buffering=0) as file:
                file.write(content[: len(content) // 2])
                self.look()
                file.write(content[len(content) // 2 :])
            self.look()
            os.truncate(self.log, 0)

    def compress(self) -> None:
        if rotated := self.rotated():
            path = self.random.choice(rotated[-2:])
            self.lose(path)
            with gzip.open(f"{path}.{self.rotations}{len(self.written)}.gz", "wb") as file:
                file.write(path.read_bytes())
            path.unlink()

    def remove(self) -> None:
        if rotated := self.rotated():
            self.lose(rotated[0])
            rotated[0].unlink()

    def replace(self) -> None:
        if self.log.exists():
            self.lose(self.log)
            new = self.directory / "new"
            new.write_text(f"{self.header}{self.mark()}\n")
            new.rename(self.log)

    def cut(self) -> None:
        # That a file was cut which begins as before cannot be seen.
        if self.log.exists() and not self.header:
            self.lose(self.log, is_cut=True)
            os.truncate(self.log, 0)

    def lose(self, path: Path, *, is_cut: bool = False) -> None:
        marks = re.findall(r"<(\d+)>", path.read_text())
        if not marks:
            return
        self.has_lost = True
        is_held = self.reader is not None and is_open(path)
        is_known = min(map(int, marks)) < self.seen
        done = self.done_marks
        for mark in (f"<{mark}>" for mark in marks):
            if mark in done or (is_held and not is_cut):
                self.fragile.add(mark)
            else:
                self.excused.add(mark)
            if path != self.log or not is_known:
                self.untold.add(mark)

    # The reader.

    def look(self) -> None:
        for _ in range(self.random.choice([1, 1, 2, 5])):
            self.look_once()

    def wait(self) -> None:
        for _ in range(self.random.choice([10, 22, 30, 50])):
            self.look_once()

    def look_once(self) -> None:
        self.now_ns += LOOK_NS
        if self.reader is None:
            return
        self.seen = len(self.written)
        if (found := self.reader.look(self.now_ns)) is None:
            return
        file, lines = found
        for line in lines:
            key = file.life, file.read
            assert self.texts.setdefault(key, line) == line, self.trail
            self.done.append((key, set(re.findall(r"<\d+>", line.decode()))))
            file.read += len(line)

    def ack(self, share: float = 0.5) -> None:
        if self.reader and self.done:
            self.acked.update(self.random.sample([key for key, _ in self.done], int(len(self.done) * share)))
            self.reader.store(key for key, _ in self.done if key not in self.acked)

    def kill(self) -> None:
        self.death()
        self.reader = self.reader or self.open()

    def death(self) -> None:
        """Nothing runs, until the next kill."""
        if self.reader:
            self.reader.close()
            self.reader = None
            self.excused |= self.fragile
            self.fragile.clear()
            self.done = [(key, marks) for key, marks in self.done if key in self.acked]


def is_open(path: Path) -> bool:
    """Whether this process has a descriptor of the file."""
    return any(Path(link).exists() and os.path.samefile(link, path) for link in Path("/proc/self/fd").iterdir())
