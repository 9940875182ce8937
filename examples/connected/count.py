"""Counts the pages asked for in a queue of log lines, each line once, into a sorted set of Redis:
`squall run count.py --workers 2 -- QUEUE REDIS`."""

from squall import Config, StatefulBolt, Topology, TopologyBuilder, bolt
from squall.connect import QueueSource, RedisSink


@bolt("page")
def page_of(tup):
    asked = tup["line"].split('"')[1:2]
    words = asked[0].split() if asked else []
    if len(words) == 3:  # GET /shoes HTTP/1.1
        yield words[1].partition("?")[0]


class Count(StatefulBolt):
    outputs = ("page", "count")

    def execute(self, tup, collector):
        page = tup["page"]
        self.state[page] = count = self.state.get(page, 0) + 1
        collector.emit((page, count))


def topology(args: list[str]) -> tuple[Topology, Config]:
    queue, redis = args
    builder = TopologyBuilder()
    builder.set_spout("lines", QueueSource(queue, ("line",)))
    builder.set_bolt("pages", page_of, parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("counts", Count(), parallelism=2).fields_grouping("pages", "page")
    # A count that comes late, or again, does no harm.
    sink = RedisSink(redis, sorted_set="pages", key="page", value="count", rises=True)
    builder.set_bolt("redis", sink).fields_grouping("counts", "page")
    return builder.build(), Config(workers=2)
