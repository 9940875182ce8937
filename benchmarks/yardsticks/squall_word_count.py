"""The word count on Squall: by rows and by batches, tracked and not."""

from __future__ import annotations

from benchmarks.batch_word_count import batch_run
from benchmarks.corpus import Corpus
from benchmarks.measured import Measured, Unavailable
from benchmarks.word_count import squall_run
from squall import LocalCluster


class OnSquall:
    """Yardsticks on one cluster, or each run on one of its own."""

    def __init__(self, cluster: LocalCluster | None = None) -> None:
        self.cluster = cluster

    def rows(self, corpus: Corpus, workers: int, repeat: int) -> Measured:
        return _of(corpus, repeat, squall_run(corpus.path, workers, repeat, cluster=self.cluster)[0])

    def rows_untracked(self, corpus: Corpus, workers: int, repeat: int) -> Measured:
        return _of(corpus, repeat, squall_run(corpus.path, workers, repeat, tracked=False, cluster=self.cluster)[0])

    def batches(self, corpus: Corpus, workers: int, repeat: int) -> Measured:
        return _of(corpus, repeat, batch_run(corpus.path, workers, repeat, cluster=self.cluster)[0])

    def batches_untracked(self, corpus: Corpus, workers: int, repeat: int) -> Measured:
        return _of(corpus, repeat, batch_run(corpus.path, workers, repeat, tracked=False, cluster=self.cluster)[0])

    def arrow(self, corpus: Corpus, workers: int, repeat: int) -> Measured:
        try:
            from benchmarks.arrow_word_count import arrow_run
        except ImportError as error:
            raise Unavailable(f"{error.name} is not installed: the extra `bench` has it") from None
        return _of(corpus, repeat, arrow_run(corpus.path, workers, repeat, cluster=self.cluster)[0])


def _of(corpus: Corpus, repeat: int, secs: float) -> Measured:
    return Measured(secs, corpus.lines * repeat, corpus.words * repeat)
