"""A worker with threads that end with the test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from squall import TopologyBuilder
from tests.unit.rig import Rig


@contextlib.contextmanager
def threaded(builder: TopologyBuilder, **settings: Any) -> Iterator[Rig]:
    """A rig whose threads run. User objects that wait for the test have a method `let_go`, which is called first."""
    before = set(threading.enumerate())
    rig = Rig(builder, threads=True, **settings)
    try:
        yield rig
    finally:
        for _, _, user in rig.core.users():
            if hasattr(user, "let_go"):
                user.let_go()
        rig.close()
    assert set(threading.enumerate()) <= before
