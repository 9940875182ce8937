"""Clusters and processes that were forked from the program that uses them."""

from __future__ import annotations

import os

from squall import LocalCluster, TopologyBuilder, bolt, spout
from squall.engine.errors import UsageError


def test_a_forked_process_may_not_use_a_connection_and_ends_no_cluster() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout("n")(lambda: range(10)))
    builder.set_bolt("sink", bolt(print)).shuffle_grouping("numbers")
    with LocalCluster(slots_per_node=1) as cluster:
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            try:
                cluster.names()
            except UsageError as error:
                os.write(writes, str(error).encode())
            finally:
                cluster.close()
                os._exit(0)
        os.close(writes)
        os.waitpid(child, 0)
        said = os.read(reads, 10_000).decode()
        os.close(reads)
        assert f"belongs to process {os.getpid()}, and this process was forked from it" in said
        assert cluster.submit("numbers", builder.build()).wait_until_drained(timeout=60).acked == 10
