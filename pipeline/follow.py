"""Goes on preparing what arrives in a directory: `squall prepare --follow`.

Guarantees that each increment is one of `pipeline.prepare`, whole or not at all, and that between two there is nothing
to lose: whoever kills this, the next run takes what is left. Looks at names, sizes and times of change once a second,
and begins Spark once. Thread: the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace

from squall.engine.plural import plural
from squall.pipeline.prepare import ChangedMeanwhile, NothingYet, Prepared, Progress

LOOK_SECS = 1.0
#: How soon a request to stop is seen.
STOP_SECS = 0.05


def follow(
    once: Callable[[], Prepared], look: Callable[[], Hashable], should_stop: Callable[[], bool], progress: Progress
) -> Prepared | None:
    """Prepare `once` whenever `look` sees something else, until `should_stop`. The last outcome, with what all
    increments added; None if there was none."""
    last: Prepared | None = None
    seen: Hashable = None
    while not should_stop():
        now = look()
        if now != seen:
            seen = now
            try:
                made = once()
            except NothingYet as error:
                progress(f"{error}; waiting for more")
            except ChangedMeanwhile as error:
                progress(f"{error.what}; trying again")
                seen = None
            else:
                if made.added_files:
                    progress(f"added {plural(made.added_rows, 'row')} of {plural(made.added_files, 'file')}")
                last = made if last is None else replace(
                    made, added_files=last.added_files + made.added_files, added_rows=last.added_rows + made.added_rows,
                )
        until = time.monotonic() + LOOK_SECS
        while time.monotonic() < until and not should_stop():
            time.sleep(STOP_SECS)
    return last
