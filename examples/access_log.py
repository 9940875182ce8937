"""Tail of an access log that grows and is rotated: requests and errors of each second, and alarms.

    squall submit examples/access_log.py --name access-log --workers 2 -- access.log rates.db

::

    tail ──shuffle──► parse ──global──► rates ──global──► alarms

docs/examples/access_log.md tells what of it is exact.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, TailSpout, Topology, TopologyBuilder, TopologyContext, Tuple, bolt

LINE = re.compile(r'\S+ \S+ \S+ \[([^\]]+)\] ".*?" (\d{3}) ')
ALARM_ERRORS = 5
SCHEMA = """
    PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; -- no write waits for the disk
    CREATE TABLE IF NOT EXISTS seen (life, number, PRIMARY KEY (life, number)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS floors (life PRIMARY KEY, floor);
    CREATE TABLE IF NOT EXISTS rates (second PRIMARY KEY, requests, errors);
"""
RAISE = "INSERT INTO floors VALUES (?1, ?2) ON CONFLICT DO UPDATE SET floor = max(floor, ?2)"
REMEMBER = "INSERT OR IGNORE INTO seen SELECT ?1, ?2 FROM floors WHERE life = ?1 AND floor <= ?2"
COUNT = """
    INSERT INTO rates VALUES (?1, 1, ?2)
    ON CONFLICT DO UPDATE SET requests = requests + 1, errors = errors + ?2
"""


@bolt("origin", "second", "error")
def parse(tup: Tuple) -> tuple[Any, str, bool]:
    found = LINE.match(tup["text"])
    try:
        second = datetime.strptime(found[1], "%d/%b/%Y:%H:%M:%S %z").isoformat() if found else "unreadable"
    except ValueError:
        second = "unreadable"
    return tup["origin"], second, bool(found) and found[2] >= "500"


class Rates(BasicBolt):
    outputs = ("second", "requests", "errors")

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.db = sqlite3.connect(self.path)
        self.db.executescript(SCHEMA)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        (life, number, floor), second, error = tup.values
        with self.db:  # one transaction: a line is remembered and counted, or neither
            self.db.execute(RAISE, (life, floor))  # lines below the floor are done, and need not be remembered
            if self.db.execute(REMEMBER, (life, number)).rowcount:
                self.db.execute(COUNT, (second, error))
            self.db.execute("DELETE FROM seen WHERE life = ? AND number < ?", (life, floor))
        row = self.db.execute("SELECT * FROM rates WHERE second = ?", (second,)).fetchone()
        if row[2] >= ALARM_ERRORS:
            collector.emit(row)  # also for a line that was seen: the alarm may have been lost

    def cleanup(self) -> None:
        self.db.close()


class Alarms(BasicBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.told: set[str] = set()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["second"] not in self.told:
            print(f"ALARM {tup['second']}: {tup['errors']} errors in {tup['requests']} requests", flush=True)
            self.told.add(tup["second"])


def topology(arguments: list[str]) -> Topology:
    log, out = arguments
    builder = TopologyBuilder()
    builder.set_spout("tail", TailSpout(log, with_origin=True))
    builder.set_bolt("parse", parse, parallelism=2).shuffle_grouping("tail")
    builder.set_bolt("rates", Rates(out)).global_grouping("parse")
    builder.set_bolt("alarms", Alarms()).global_grouping("rates")
    return builder.build()
