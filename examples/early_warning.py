"""Early warning on a stream of measurements: an alarm when a mean passes a limit, and its end.

    squall run examples/early_warning.py --workers 2

::

    measurements ──fields(host)──► watch ──"alarm"──global──► alarms

`watch` keeps the last readings of each host. The limit for the alarm is higher than that for its end, so a mean near
the limit gives one alarm and not many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from squall import BasicBolt, BasicCollector, Topology, TopologyBuilder, TopologyContext, Tuple, bolt, spout

HOSTS = ("web-1", "web-2", "db-1")
SECONDS = 120
WINDOW = 5
ALARM_MS, END_MS = 300.0, 250.0


def response_ms(host: str, second: int) -> float:
    """Response times: db-1 becomes slow for a while, the others have a rare outlier."""
    wave = 100 + 50 * math.sin(second / 7 + len(host))
    if host == "db-1" and 40 <= second < 70:
        return wave + 400
    return wave + (500 if second % 31 == len(host) else 0)


@spout("host", "second", "ms")
def measurements(start: int) -> Iterator[tuple[str, int, float]]:
    for number in range(start, SECONDS * len(HOSTS)):
        second, index = divmod(number, len(HOSTS))
        yield HOSTS[index], second, response_ms(HOSTS[index], second)


class Watch(BasicBolt):
    outputs = {"alarm": ("host", "second", "what")}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.readings: dict[str, dict[int, float]] = {}
        self.alarmed: set[str] = set()
        self.said: dict[tuple[str, int], str] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        host, second, ms = tup.values
        if (host, second) in self.said:
            # The reading came again: its alarm may have been lost on the way, so leaving it out would be wrong.
            collector.emit((host, second, self.said[host, second]), stream="alarm")
            return
        # By second: a reading that comes again changes nothing.
        readings = self.readings.setdefault(host, {})
        readings[second] = ms
        for old in sorted(readings)[:-WINDOW]:
            del readings[old]
        mean = sum(readings.values()) / len(readings)
        if len(readings) == WINDOW and mean > ALARM_MS and host not in self.alarmed:
            self.alarmed.add(host)
            self.said[host, second] = f"ALARM, mean {mean:.0f} ms"
        elif mean < END_MS and host in self.alarmed:
            self.alarmed.remove(host)
            self.said[host, second] = f"well again, mean {mean:.0f} ms"
        if (host, second) in self.said:
            collector.emit((host, second, self.said[host, second]), stream="alarm")


@bolt
def alarms(tup: Tuple) -> None:
    print(f"{tup['second']} s {tup['host']}: {tup['what']}", flush=True)


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("measurements", measurements)
    builder.set_bolt("watch", Watch(), parallelism=2).fields_grouping("measurements", "host")
    builder.set_bolt("alarms", alarms).global_grouping("watch", stream="alarm")
    return builder.build()
