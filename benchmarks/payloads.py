"""`python -m benchmarks.payloads`: big values between two workers, beside a plain copy of memory in the same run.

One spout emits values of one size, one bolt in another worker looks at the first and the last byte of each; every tuple
is tracked, 64 are open at most. GB/s are those of acked values, once warm. Besides sizes, it varies what carries them
(an arena of 64 MiB, a tiny one, none), what they are (bytes, numpy, Arrow), and how many read each: with `all`, four
bolts in four workers.

    python -m benchmarks.payloads [--quick] [--secs 1.5] [--sizes 65536,1048576] [--only CASE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.payload_floor import passing_rate
from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    LocalCluster,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

SIZES = (64, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20)
QUICK_SIZES = (4096, 65536, 1 << 20)
PENDING = 64
WARM_UP_SECS = 0.4
_MOST_READERS = 4
_DIFFERENT = 8
"""Values that the spout emits in turn, so that not all are in the innermost cache."""


def make_values(kind: str, size: int) -> list[Any]:
    """Values of so many bytes."""
    plain = [bytes([number]) * size for number in range(1, _DIFFERENT + 1)]
    if kind == "numpy":
        import numpy as np

        return [np.frombuffer(value, np.uint8).copy() for value in plain]
    if kind == "arrow":
        import pyarrow as pa

        return [pa.array(list(memoryview(value[: min(size, 8)])) * max(1, size // 8), pa.uint8()) for value in plain]
    return plain


class Values(Spout):
    """Emits for a while, then writes how many bytes were acked in how many seconds, without the warm-up."""

    outputs = ("value",)

    def __init__(self, kind: str, size: int, secs: float, result: str) -> None:
        self.kind = kind
        self.size = size
        self.secs = secs
        self.result = result

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.values = make_values(self.kind, self.size)
        self.emitted = self.acked = 0
        self.began: float | None = None
        self.warm: tuple[float, int] | None = None

    def next_tuple(self) -> None:
        now = time.perf_counter()
        if self.began is None:
            self.began = now
        elif self.warm is None:
            if now - self.began > WARM_UP_SECS:
                self.warm = now, self.acked
        elif now - self.warm[0] > self.secs:
            if not self.exhausted:
                Path(self.result).write_text(json.dumps([self.acked - self.warm[1], now - self.warm[0]]))
            self.exhausted = True
            return
        self.emitted += 1
        self.collector.emit((self.values[self.emitted % _DIFFERENT],), message_id=self.emitted)

    def ack(self, message_id: int) -> None:
        self.acked += 1


class Looks(BasicBolt):
    """Looks at both ends of a value."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        value = tup[0]
        if value[0] != value[-1]:
            raise ValueError("not what was sent")


class LooksAtArrow(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        value = tup[0]
        if value[0].as_py() != value[len(value) - 1].as_py():
            raise ValueError("not what was sent")


def passing(spout: Values, readers: int) -> Topology:
    bolt = LooksAtArrow() if spout.kind == "arrow" else Looks()
    builder = TopologyBuilder()
    builder.set_spout("values", spout)
    declarer = builder.set_bolt("looks", bolt, parallelism=readers)
    declarer.all_grouping("values") if readers > 1 else declarer.shuffle_grouping("values")
    return builder.build()


def payload_run(
    cluster: LocalCluster, kind: str, size: int, secs: float, arena_bytes: int = 64 << 20, readers: int = 1,
    **settings: Any,
) -> float:
    """Bytes per second that readers have got and acked, on a cluster with nothing else to do."""
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name:
        result = Path(name) / "result.json"
        config = Config(workers=1 + readers, max_spout_pending=PENDING, arena_bytes=arena_bytes, **settings)
        topology = passing(Values(kind, size, secs, str(result)), readers)
        job = cluster.submit("payloads", topology, config, fresh=True)
        report = job.wait_until_drained(timeout=secs + 60)
        job.kill(wait_secs=0)
        if report.acked != report.emitted or report.failed or report.restarts:
            raise SystemExit(f"not a valid run: {report.to_json()}")
        acked, took = json.loads(result.read_text())
        return float(acked) * size * readers / float(took)


def copy_rate(size: int, secs: float = 0.2) -> float:
    """Bytes per second of copying such values from and to as many places as the spout emits."""
    values = make_values("bytes", size)
    room = memoryview(bytearray(size * _DIFFERENT))
    places = [room[at * size : (at + 1) * size] for at in range(_DIFFERENT)]
    done, took = 0, 0.0
    for end in (0.1, secs):  # once to warm up
        done, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < end:
            for place, value in zip(places, values, strict=True):
                place[:] = value
            done += _DIFFERENT
    return done * size / took


CASES: dict[str, dict[str, Any]] = {
    "bytes": {"kind": "bytes"},
    "bytes, arena of 1 MiB": {"kind": "bytes", "arena_bytes": 1 << 20},
    "bytes, no arena": {"kind": "bytes", "arena_bytes": 0},
    "numpy": {"kind": "numpy"},
    "Arrow": {"kind": "arrow"},
    "bytes, `all` to 4": {"kind": "bytes", "readers": _MOST_READERS},
}
QUICK_CASES = ("bytes", "bytes, no arena", "numpy", "bytes, `all` to 4")


def table(sizes: tuple[int, ...], cases: list[str], secs: float) -> Iterator[str]:
    """The lines of a Markdown table: GB/s, and the share of a plain copy."""
    yield "| | " + " | ".join(_named(size) for size in sizes) + " |"
    yield "| --- |" + " ---: |" * len(sizes)
    copies = [copy_rate(size) for size in sizes]
    yield "| a plain copy | " + " | ".join(f"{rate / 1e9:.1f}" for rate in copies) + " |"
    floors = [passing_rate(make_values("bytes", size)) for size in sizes]
    floor_cells = [f"{rate / 1e9:.1f} ({rate / copy:.2f})" for rate, copy in zip(floors, copies, strict=True)]
    yield "| two processes that only copy once and check twice | " + " | ".join(floor_cells) + " |"
    with LocalCluster(slots_per_node=1 + _MOST_READERS) as cluster:
        for case in cases:
            rates = [payload_run(cluster, size=size, secs=secs, **CASES[case]) for size in sizes]
            cells = [f"{rate / 1e9:.2f} ({rate / copy:.2f})" for rate, copy in zip(rates, copies, strict=True)]
            yield f"| {case} | " + " | ".join(cells) + " |"


def _named(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.payloads", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three sizes, four cases")
    parser.add_argument("--secs", type=float, default=1.5, help="time measured for each cell (default 1.5)")
    parser.add_argument("--sizes", help="bytes, comma between them")
    parser.add_argument("--only", action="append", choices=CASES, help="this case alone; may be repeated")
    options = parser.parse_args()
    sizes: tuple[int, ...] = QUICK_SIZES if options.quick else SIZES
    if options.sizes:
        sizes = tuple(map(int, options.sizes.split(",")))
    for line in table(sizes, options.only or list(QUICK_CASES if options.quick else CASES), options.secs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
