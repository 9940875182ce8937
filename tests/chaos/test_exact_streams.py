"""Windows and joins by event time under random faults: each result is what the input alone says, and nothing is late.

    seq 1 3 100 | xargs -P 2 -I{} sh -c 'SQUALL_TEST_SEED={} pytest -q -m slow tests/chaos/test_exact_streams.py'
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.chaos.stream_parts import topic
from tests.process.cli import squall
from tests.servers import kafka
from tests.servers.kafka import Broker

SEEDS = 3
FOR = "10s"
"""Without faults and at full speed it takes a second, and six where the machine is busy with much else."""
MIX = "process,executor,link,daemons,code,machine"
"""No poison: of a run with dead letters, the result is not compared."""
BATCH = 5
"""Records that Kafka keeps, and hands out, together."""
HERE = "tests/chaos/exact_chaos.py"

pytestmark = [pytest.mark.xdist_group("kafka"), pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka.running() as broker:
        yield broker


@pytest.mark.parametrize("name", ["kafka_windows", "joined"])
def test_each_result_is_exact(broker: Broker, seed: int, name: str) -> None:
    """Seeds that follow one another, over an input that the first one draws."""
    partitions = topic(seed)
    if (topic_name := f"exact-{seed}") not in broker.admin.list_topics(timeout=60).topics:
        broker.make_topic(topic_name, len(partitions))
        broker.write(topic_name, [
            (number, json.dumps(record)) for number, records in enumerate(partitions) for record in records
        ], BATCH)
    done = squall(
        "chaos", "--app-dir", ".", f"{HERE}:{name}", "--result", f"{HERE}:checked_{name}", "--seed", str(seed),
        "--seeds", str(SEEDS), "--for", FOR, "--mix", MIX, "--set", "workers=3", "--",
        broker.servers, str(seed), "{}", timeout=900,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stderr
