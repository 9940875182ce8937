"""Directories that Squall itself writes, which `squall prepare` leaves out where it finds them inside of an input.

Decides only, by names. An input that is such a directory itself is the user's choice, but for a feed.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from squall.pipeline.manifest import MANIFEST_NAME

FEED = "a feed"
#: What a run of prepare holds beside a feed.
_STAGING = re.compile(r".+\.(tmp|old)-prepare-\d+")
#: By kind, names that only such a directory holds together.
_MARKS = {
    FEED: {MANIFEST_NAME},
    "a result of word_count.py": {"ledger", "counts"},
    "a checkpoint of --on spark": {"topology.json", "control.pickle"},
    "a run directory": {"nimbus.db", "lock"},
}


def kind_of(name: str, entries: Collection[str]) -> str:
    """What a directory is, if it is one of Squall's; else empty. `entries`: the names in it."""
    if _STAGING.fullmatch(name):
        return FEED
    return next((kind for kind, marks in _MARKS.items() if marks.issubset(entries)), "")
