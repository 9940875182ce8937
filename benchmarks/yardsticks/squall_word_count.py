"""The word count on Squall: by rows and by batches, tracked and not."""

from __future__ import annotations

from benchmarks.batch_word_count import batch_run
from benchmarks.corpus import Corpus
from benchmarks.measured import Measured, Unavailable
from benchmarks.word_count import squall_run


def rows(corpus: Corpus, workers: int, repeat: int) -> Measured:
    return Measured(squall_run(corpus.path, workers, repeat)[0], corpus.lines * repeat, corpus.words * repeat)


def rows_untracked(corpus: Corpus, workers: int, repeat: int) -> Measured:
    secs, _ = squall_run(corpus.path, workers, repeat, tracked=False)
    return Measured(secs, corpus.lines * repeat, corpus.words * repeat)


def batches(corpus: Corpus, workers: int, repeat: int) -> Measured:
    return Measured(batch_run(corpus.path, workers, repeat)[0], corpus.lines * repeat, corpus.words * repeat)


def batches_untracked(corpus: Corpus, workers: int, repeat: int) -> Measured:
    secs, _ = batch_run(corpus.path, workers, repeat, tracked=False)
    return Measured(secs, corpus.lines * repeat, corpus.words * repeat)


def arrow(corpus: Corpus, workers: int, repeat: int) -> Measured:
    try:
        from benchmarks.arrow_word_count import arrow_run
    except ImportError as error:
        raise Unavailable(f"{error.name} is not installed: the extra `bench` has it") from None
    return Measured(arrow_run(corpus.path, workers, repeat)[0], corpus.lines * repeat, corpus.words * repeat)
