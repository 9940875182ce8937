"""Storm's Nimbus interface without a cluster: calls and errors, and figures that it shares."""

from __future__ import annotations

import logging
import os
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thriftpy2.thrift import TApplicationException, TProcessor
from thriftpy2.utils import deserialize, serialize

from squall import ClusterError
from squall.scheduler.client.statuses import ExecutorShown, Output
from squall.ui.rest.storm_cluster import owners
from squall.ui.rest.storm_topology import by_executor, by_output
from squall.ui.storm_thrift import answer_to, idl


def failing(error: Exception) -> TProcessor:
    """A Nimbus whose methods fail."""
    return TProcessor(idl.Nimbus, Mock(**{f"{method}.side_effect": error for method in ("killTopology", "rebalance")}))


CARRIED_OUT = failing(AssertionError("carried out"))


def call(method: str, **arguments: Any) -> bytes:
    name = method.encode()
    head = b"\x80\x01\x00\x01" + len(name).to_bytes(4, "big") + name + b"\x00\x00\x00\x07"
    return head + serialize(getattr(idl.Nimbus, f"{method}_args")(**arguments))


@pytest.mark.parametrize(("error", "is_bug"), [(ClusterError("no x"), False), (KeyError("no x"), True)])
def test_an_error_that_storm_has_no_name_for_is_answered(
    error: Exception, is_bug: bool, caplog: pytest.LogCaptureFixture
) -> None:
    answer = answer_to(call("killTopology", name="x"), failing(error))
    head = b"\x80\x01\x00\x03" + call("killTopology")[4:24]
    assert answer.startswith(head)
    assert "no x" in deserialize(TApplicationException(), answer[len(head):]).message
    # A bug is told here, too.
    assert [each.levelno for each in caplog.records] == [logging.ERROR] * is_bug


WHOLE = call("rebalance", name="words", options=idl.RebalanceOptions(wait_secs=5, num_executors={"count": 2}))


@example(call("killTopology", name=b"\xff"))
@given(st.integers(0, len(WHOLE) - 1).map(lambda end: WHOLE[:end]) | st.binary(max_size=200))
def test_what_is_no_whole_call_is_not_carried_out(sent: bytes) -> None:
    assert answer_to(sent, CARRIED_OUT) == b""


def test_a_user_without_a_name_is_told_by_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
    [row] = owners(Mock(**{"sampler.names.return_value": []}))["owners"]
    assert row["owner"] == str(os.getuid())


def test_each_stream_of_a_spout_has_its_share() -> None:
    spout = Mock(kind="spout", outputs={"a": Output([], 30), "b": Output([], 10)})
    done = Mock(emitted=40, transferred=80, acked=20, failed=4, complete_ms=1.5)
    assert by_output(spout, done) == [
        {"stream": "a", "emitted": 30, "transferred": 60, "acked": 15, "failed": 3, "completeLatency": "1.500"},
        {"stream": "b", "emitted": 10, "transferred": 20, "acked": 5, "failed": 1, "completeLatency": "1.500"},
    ]


def test_an_executor_whose_worker_has_no_board_yet_has_done_nothing() -> None:
    executor = ExecutorShown("split", [1, 2], "node-1:6700")
    begun = Mock(status=Mock(executors=[executor], duration_secs=0.0), readings=[])
    [(found, done)] = by_executor(begun, "split")
    assert (found, done.executed, done.capacity) == (executor, 0, 0.0)
