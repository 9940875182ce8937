"""The rows that Spark moves between the levels of a topology: opaque to Spark but for their address.

::

    level  slot   kind    source  seq  nonce  body
    2      0      PARCEL  3       0    8231   tuples of worker 3 for the first worker of level 2
    2      0      STATE   5       0    1178   what worker 5 is at the end of the batch
    -1     0      REPORT  5       0    1178   its counters

A nonce is drawn at each execution of a worker for a batch. Spark may execute one again (a machine died): rows of
different executions must not be mixed, and the nonce shows if they are.
"""

from __future__ import annotations

from typing import NamedTuple

STATE, PARCEL, REPORT = range(3)
"""In the order in which a worker reads them."""
END = -1
"""The level of what no worker of this batch reads."""
SCHEMA = "level int, slot int, kind int, source int, seq int, nonce bigint, body binary"


class Row(NamedTuple):
    """One row."""

    level: int
    slot: int
    kind: int
    source: int
    """The worker that made it."""
    seq: int
    """Rows of one kind and source are read in this order."""
    nonce: int
    body: bytes
