"""Clusters and processes that were forked from the program that uses them."""

from __future__ import annotations

import os

from squall import TopologyBuilder, bolt, spout
from squall.engine.errors import UsageError
from tests.process.conftest import SharedCluster


def test_a_forked_process_may_not_use_a_connection_and_ends_no_cluster(shared_cluster: SharedCluster) -> None:
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            shared_cluster.names()
        except UsageError as error:
            os.write(writes, str(error).encode())
        finally:
            shared_cluster.close()
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as told:
        assert f"belongs to process {os.getpid()}, and this process was forked from it" in told.read()
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout("n")(lambda: range(10)))
    builder.set_bolt("sink", bolt(print)).shuffle_grouping("numbers")
    assert shared_cluster.run(builder.build()).acked == 10
