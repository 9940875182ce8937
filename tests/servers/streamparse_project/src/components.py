"""Components of the streamparse project of the tests."""

import os
from collections import Counter
from typing import Any, ClassVar

from streamparse import BatchingBolt, Bolt, ReliableSpout, Stream, TicklessBatchingBolt  # type: ignore[import-not-found]

LINES = 100


class Lines(ReliableSpout):  # type: ignore[misc]
    outputs: ClassVar = ["line"]

    def initialize(self, stormconf: Any, context: Any) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < LINES:
            self.emit([f"the cow {self.at} jümped over"], tup_id=self.at)
            self.at += 1


class Words(Bolt):  # type: ignore[misc]
    outputs: ClassVar = [Stream(fields=["word"], name="short"), Stream(fields=["word", "length"], name="long")]

    def process(self, tup: Any) -> None:
        print("a stray print of", tup.values.line)
        for word in tup.values.line.split():
            if len(word) < 4:
                assert len(self.emit([word], stream="short", need_task_ids=True)) == 1
            else:
                self.emit([word, len(word)], stream="long")


class Lengths(BatchingBolt):  # type: ignore[misc]
    outputs: ClassVar = ["counts"]
    config: ClassVar = {"topology.tick.tuple.freq.secs": 1}
    ticks_between_batches = 1

    def group_key(self, tup: Any) -> Any:
        return tup.stream

    def process_batch(self, key: Any, tups: Any) -> None:
        self.logger.warning("a batch of %s", key)
        self.emit([dict(Counter(len(tup.values.word) for tup in tups))])


class Notes(TicklessBatchingBolt):  # type: ignore[misc]
    secs_between_batches = 0.2

    def initialize(self, conf: Any, context: Any) -> None:
        self.path = os.path.join(os.environ["WORDS_DIRECTORY"], conf["words.note"])

    def process_batch(self, key: Any, tups: Any) -> None:
        with open(self.path, "a") as file:
            for tup in tups:
                file.writelines(f"[{length}, {count}]\n" for length, count in tup.values.counts.items())
