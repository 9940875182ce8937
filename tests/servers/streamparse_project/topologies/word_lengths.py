"""A streamparse topology of the tests: lines, words, and counts of words by length."""

from typing import ClassVar

from components import Lengths, Lines, Notes, Words  # type: ignore[import-not-found]
from streamparse import Grouping, Topology  # type: ignore[import-not-found]


class WordLengths(Topology):  # type: ignore[misc]
    config: ClassVar = {
        "topology.message.timeout.secs": 60, "topology.max.task.parallelism": 4, "words.note": "counted"
    }

    lines = Lines.spec()
    words = Words.spec(inputs=[lines], par={"prod": 2, "beta": 1})
    lengths = Lengths.spec(inputs={words["short"]: Grouping.fields("word"), words["long"]: Grouping.ALL})
    notes = Notes.spec(inputs={lengths: Grouping.GLOBAL})
