"""Tail of an access log that grows and is rotated: requests and errors of each second, and alarms.

    squall submit examples/access_log.py --name access-log --workers 2 -- access.log rates.db

::

    tail ──shuffle──► parse ──┬──► rates (SqlSink)
                              └──► alarms

docs/examples/access_log.md tells what of it is exact.
"""

from __future__ import annotations

import re
import sqlite3
from datetime import datetime
from pathlib import Path

from squall import BasicCollector, SqlSink, StatefulBolt, TailSpout, Topology, TopologyBuilder, Tuple, bolt

LINE = re.compile(r'\S+ \S+ \S+ \[([^\]]+)\] ".*?" (\d{3}) ')
ALARM_ERRORS = 5
SCHEMA = """
    PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; -- no write waits for the disk, nor for a reader
    CREATE TABLE IF NOT EXISTS rates (second PRIMARY KEY, requests, errors);
"""
COUNT = """
    INSERT INTO rates VALUES (?, 1, ?)
    ON CONFLICT DO UPDATE SET requests = requests + 1, errors = errors + excluded.errors
"""


@bolt("second", "error")
def parse(tup: Tuple) -> tuple[str, bool]:
    found = LINE.match(tup["text"])
    try:
        second = datetime.strptime(found[1], "%d/%b/%Y:%H:%M:%S %z").isoformat() if found else "unreadable"
    except ValueError:
        second = "unreadable"
    return second, bool(found) and found[2] >= "500"


class Alarms(StatefulBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["error"]:
            self.state[tup["second"]] = errors = self.state.get(tup["second"], 0) + 1
            if errors == ALARM_ERRORS:
                print(f"ALARM {tup['second']}: {errors} errors", flush=True)


def topology(arguments: list[str]) -> Topology:
    log, out = (Path(argument).absolute() for argument in arguments)

    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(out)
        db.executescript(SCHEMA)
        return db

    builder = TopologyBuilder()
    builder.set_spout("tail", TailSpout(log))
    builder.set_bolt("parse", parse, parallelism=2).shuffle_grouping("tail")
    builder.set_bolt("rates", SqlSink(connect, COUNT)).global_grouping("parse")
    builder.set_bolt("alarms", Alarms()).fields_grouping("parse", "second")
    return builder.build()
