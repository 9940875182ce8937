"""`python -m benchmarks.storm`: word count on a real Storm cluster, and on Squall, in turn; every line tracked in both.

Storm's JVMs are warm when they are measured, and stopped by a signal while others are. Four minutes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.corpus import Corpus, eight_a_line
from benchmarks.measured import Unavailable
from benchmarks.paced import Latency
from benchmarks.publish import publish
from benchmarks.results import Part, Plot, bars_of, throughput_rows
from benchmarks.rounds import Outcome, Yardstick, alternate, say, take
from benchmarks.storm.artefacts import build_topology, fetch_jars, storm_version
from benchmarks.storm.cluster import Cluster
from benchmarks.storm.word_count import PYTHON, Running, Setting
from benchmarks.yardsticks import bare_queue, plain_loop
from benchmarks.yardsticks.squall_word_count import OnSquall

ONE_WORKER = Setting("Storm, 1 worker")
TWO_WORKERS = Setting("Storm, 2 workers", workers=2, spouts=2, splits=2, counts=2, ackers=2)
IN_PYTHON = Setting("Storm, 1 worker, splitting in Python (multilang)", split=PYTHON, splits=2, pending=2000)
_SETTLE_SECS = 1.5
"""After it was stopped: what was due meanwhile is made up for first."""


def beside() -> list[Yardstick]:
    # Each on a cluster of its own: none stands while Storm is measured.
    squall = OnSquall()
    return [
        Yardstick("Squall, rows, 1 worker", squall.rows, 1, 2),
        Yardstick("Squall, rows, 2 workers", squall.rows, 2, 3),
        Yardstick("Squall, batches of lists, 1 worker", squall.batches, 1, 6),
        Yardstick("Squall, batches of lists, 2 workers", squall.batches, 2, 6),
        Yardstick("Squall, batches of Arrow, 2 workers", squall.arrow, 2, 10),
        Yardstick("plain loop", plain_loop.run, 1, 2),
        Yardstick("multiprocessing.Queue, 512 words a put", bare_queue.run, 2, 4),
    ]


class Storm:
    """The settings in one cluster, each measured while the others of the round wait."""

    def __init__(self, cluster: Cluster, jar: Path, corpus: Corpus, warm_up_secs: float, secs: float) -> None:
        self.cluster, self.jar, self.corpus = cluster, jar, corpus
        self.warm_up_secs, self.secs = warm_up_secs, secs
        self.histograms: dict[str, list[int]] = {}

    def measure(self, setting: Setting, rounds: int, others: list[Yardstick], outcomes: dict[str, Outcome]) -> Outcome:
        """One setting in all rounds, and the others after it in each round."""
        outcome = Outcome(setting.name)
        with Running(self.cluster, self.jar, self.corpus, setting) as running:
            time.sleep(self.warm_up_secs)
            for number in range(rounds):
                if number:
                    self.cluster.resume()
                    time.sleep(_SETTLE_SECS)
                measured, self.histograms[setting.name] = running.measure(self.secs)
                outcome.add(measured)
                say(f"{setting.name}: {measured.words_per_sec / 1e6:.2f} M words/s")
                if others:
                    self.cluster.pause()
                    for each in others:
                        if outcomes[each.name].missing is None:
                            take(each, self.corpus, outcomes[each.name])
            self.cluster.resume()
        return outcome


def measure_storm(rounds: int, warm_up_secs: float, secs: float) -> Part:
    """The table of Storm beside Squall."""
    with tempfile.TemporaryDirectory(prefix="squall-storm-") as name:
        directory = Path(name)
        corpus = Corpus.write(directory / "text", eight_a_line())
        others = beside()
        try:
            jars = fetch_jars()
        except Unavailable as why:
            missing = Outcome("Storm", missing=str(why))
            return _part([*alternate(others, corpus, rounds), missing], {})
        jar = build_topology(jars)
        outcomes = {each.name: Outcome(each.name) for each in others}
        with Cluster(jars, directory / "cluster") as cluster:
            storm = Storm(cluster, jar, corpus, warm_up_secs, secs)
            found = [storm.measure(ONE_WORKER, rounds, others, outcomes)]
            found += [storm.measure(each, rounds, [], outcomes) for each in (TWO_WORKERS, IN_PYTHON)]
        return _part([*outcomes.values(), *found], storm.histograms)


def _part(outcomes: list[Outcome], histograms: dict[str, list[int]]) -> Part:
    rows = throughput_rows(outcomes, (ONE_WORKER.name, "multiprocessing.Queue, 512 words a put"))
    for row in rows:
        latency = Latency.of(histograms[row[0]]) if row[0] in histograms else None
        row.append("" if latency is None else f"{latency.p50:.1f} and {latency.p99:.1f} ms")
    return Part(
        title=f"Beside Apache Storm {storm_version()}",
        about="Word count, 8 words a line, every line tracked to its ack in Squall and in Storm; the loop and the "
        "queue track nothing.\nStorm has ZooKeeper, Nimbus, a supervisor and worker JVMs, at the best settings found "
        "(`benchmarks/storm/word_count.py`);\nits figure is lines acked between two moments after a warm-up, and it is "
        "stopped while others run.",
        header=["what", "M words/s", "least to most", "x Storm", "x queue", "Storm's p50 and p99 at that rate"],
        rows=rows,
        plots=[Plot("storm", "Word count, every line tracked", "M words/s", "", bars=bars_of(outcomes))],
        command="make bench-storm",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all in turn (default 3)")
    parser.add_argument("--warm-up", type=float, default=20.0, metavar="SECS", help="of each topology (default 20)")
    parser.add_argument("--secs", type=float, default=6.0, help="in which acks are counted (default 6)")
    parser.add_argument("--no-write", action="store_true", help="print only, keep nothing")
    options = parser.parse_args()
    # Storm's daemons would outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    part = measure_storm(options.rounds, options.warm_up, options.secs)
    publish({"storm": part}, write=not options.no_write)


if __name__ == "__main__":
    main()
