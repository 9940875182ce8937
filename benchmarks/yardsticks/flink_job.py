"""The word count as a PyFlink job: a file source, a Python function that splits, one that counts by key, no sink.

At its best setting: Python in the JVM's own process, large bundles, no checkpoints. The rate is that of words counted
after the first fifth, in which the JVM warms up. PyFlink pins an older cloudpickle, numpy and Arrow than Squall
takes, so it has an environment of its own, .venv-flink, without Squall.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured

EVERY = 10_000
"""Words between two notes of the time."""


def run(corpus: Corpus, workers: int, repeat: int) -> Measured:
    from benchmarks.measured import Measured, Unavailable
    from benchmarks.yardsticks.apart import ROOT, need_java, run_apart

    python = ROOT / ".venv-flink" / "bin" / "python"
    if not python.exists():
        raise Unavailable("no .venv-flink: `make bench` makes it, where PyFlink has wheels for this Python")
    need_java()
    found = run_apart("flink_job", corpus, workers, repeat, str(python))
    return Measured(found.secs, round(found.words * corpus.lines / corpus.words), found.words)


def main(path: str, workers: int, repeat: int) -> None:
    from pyflink.common import Configuration, Types, WatermarkStrategy
    from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
    from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

    # The JVM asks the first `python` on the path for the library of the interpreter that it loads.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Beside the text, whose folder goes even if this process is killed.
    notes = tempfile.mkdtemp(prefix="flink-", dir=Path(path).parent)
    texts = Path(notes) / "texts"
    texts.mkdir()
    text = Path(path).read_text(encoding="utf-8")
    for number in range(repeat):
        (texts / f"{number}.txt").write_text(text, encoding="utf-8")

    class Count(KeyedProcessFunction):
        """Counts in a dict, as all others here, and not in Flink's state, which is slower."""

        def open(self, context: Any) -> None:
            self.counts: dict[str, int] = {}
            self.seen = 0
            self.file = tempfile.NamedTemporaryFile("w", dir=notes, suffix=".times", delete=False)  # noqa: SIM115

        def process_element(self, word: str, context: Any) -> Any:
            self.counts[word] = self.counts.get(word, 0) + 1
            self.seen += 1
            if self.seen % EVERY == 0:
                self.file.write(f"{time.monotonic()}\n")
            return ()

        def close(self) -> None:
            self.file.close()

    configuration = Configuration()
    configuration.set_string("python.fn-execution.bundle.size", "100000")
    configuration.set_string("python.fn-execution.bundle.time", "1000")
    configuration.set_string("python.execution-mode", "thread")
    configuration.set_string("pipeline.object-reuse", "true")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(workers)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(texts)).build()
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    words = lines.flat_map(str.split, output_type=Types.STRING())
    counted = words.key_by(lambda word: word, key_type=Types.STRING()).process(Count(), output_type=Types.STRING())
    counted.filter(lambda _: False).print()
    environment.execute("word count")
    times = sorted(float(line) for path in Path(notes).glob("*.times") for line in path.read_text().split())
    measured = times[len(times) // 5 :]
    print(json.dumps((measured[-1] - measured[0], 0, (len(measured) - 1) * EVERY)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
