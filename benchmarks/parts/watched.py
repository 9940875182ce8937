"""What it costs a word count to be looked at: by a trace, by the server of the web page, by a browser."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from benchmarks.corpus import Corpus, eight_a_line
from benchmarks.effort import Effort
from benchmarks.measured import Measured, Unavailable
from benchmarks.results import Part, throughput_rows
from benchmarks.rounds import Yardstick, alternate
from benchmarks.word_count import squall_run
from squall import Job, LocalCluster
from squall.ui.access import link_of, running_address
from squall.ui.watching import Watching

Around = Callable[[Job], AbstractContextManager[object]]
WORKERS = 2
PLAIN = "nothing looks"
_WATCH_SECS = 600.0


def measure(effort: Effort) -> Part:
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name, contextlib.ExitStack() as ends:
        corpus = Corpus.write(Path(name) / "text", eight_a_line()[: effort.lines])
        plain = ends.enter_context(LocalCluster(slots_per_node=WORKERS))
        served = ends.enter_context(LocalCluster(slots_per_node=WORKERS, ui=[]))

        def run(cluster: LocalCluster, around: Around) -> Callable[..., Measured]:
            def once(corpus: Corpus, workers: int, repeat: int) -> Measured:
                secs, _ = squall_run(corpus.path, workers, repeat, cluster=cluster, around=around)
                return Measured(secs, corpus.lines * repeat, corpus.words * repeat)

            return once

        outcomes = alternate(
            [
                Yardstick(PLAIN, run(plain, lambda job: nullcontext()), WORKERS, effort.repeat),
                Yardstick("a trace of one message in 1,000", run(plain, _traced), WORKERS, effort.repeat),
                Yardstick("the server of the page", run(served, lambda job: nullcontext()), WORKERS, effort.repeat),
                Yardstick("a browser with its page", run(served, _seen), WORKERS, effort.repeat),
            ],
            corpus, effort.rounds,
        )
    return Part(
        title="Looked at",
        about="Word counts by rows, 2 workers, while something looks at them. Server and browser (headless chromium, "
        "which draws by\nthe processor) share the two cores with the workers.",
        header=["what", "M words/s", "least to most", "x nothing"],
        rows=throughput_rows(outcomes, (PLAIN,)),
    )


@contextlib.contextmanager
def _traced(job: Job) -> Iterator[None]:
    watching = Watching(job, _WATCH_SECS, every=1000)
    yield
    watching.end()


@contextlib.contextmanager
def _seen(job: Job) -> Iterator[None]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Unavailable("playwright is not installed: the extra `test` has it") from None
    while running_address(job.run_dir) is None:
        time.sleep(0.1)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(link_of(job.run_dir))
        page.goto(f"{page.url}topology/{job.name}")
        page.get_by_role("heading", name=job.name).wait_for()
        yield
        browser.close()
