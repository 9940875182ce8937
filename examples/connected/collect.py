"""Follows a log, and puts each of its lines into a queue: `squall run collect.py -- LOG QUEUE`."""

from squall import TailSpout, Topology, TopologyBuilder
from squall.connect import QueueSink


def topology(args: list[str]) -> Topology:
    log, queue = args
    builder = TopologyBuilder()
    builder.set_spout("log", TailSpout(log))
    builder.set_bolt("queue", QueueSink(queue)).shuffle_grouping("log")
    return builder.build()
