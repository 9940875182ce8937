"""Storm's Nimbus interface without a cluster: calls and errors, and figures that it shares."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thriftpy2.thrift import TApplicationException, TProcessor
from thriftpy2.utils import deserialize, serialize

from squall.engine.errors import ClusterError, UsageError
from squall.ui.rest.storm_topology import by_executor, by_output
from squall.ui.sampler import Unknown
from squall.ui.thrift.storm_nimbus import idl
from squall.ui.thrift.thrift_server import answer_to


def failing(error: Exception) -> TProcessor:
    """A Nimbus whose methods fail."""
    return TProcessor(idl.Nimbus, Mock(**{f"{method}.side_effect": error for method in ("killTopology", "rebalance")}))


CARRIED_OUT = failing(AssertionError("carried out"))


def call(method: str, **arguments: Any) -> bytes:
    name = method.encode()
    head = b"\x80\x01\x00\x01" + len(name).to_bytes(4, "big") + name + b"\x00\x00\x00\x07"
    return head + serialize(getattr(idl.Nimbus, f"{method}_args")(**arguments))


def answered(error: Exception, method: str) -> Any:
    """What a client makes of the answer to a call that fails."""
    answer = answer_to(call(method, name="x"), failing(error))
    kind, rest = answer[3], answer[8 + len(method):]
    assert answer[8:].startswith(method.encode())
    assert rest[:4] == b"\x00\x00\x00\x07"
    if kind == 3:
        return deserialize(TApplicationException(), rest[4:])
    result = deserialize(getattr(idl.Nimbus, f"{method}_result")(), rest[4:])
    [raised] = filter(None, vars(result).values())
    return raised


@pytest.mark.parametrize(("error", "method", "kind"), [
    (Unknown("no x"), "killTopology", idl.NotAliveException),
    (Unknown("no x"), "rebalance", idl.NotAliveException),
    (UsageError("no x"), "rebalance", idl.InvalidTopologyException),
    (UsageError("no x"), "killTopology", TApplicationException),
    (ClusterError("no x"), "rebalance", TApplicationException),
    (KeyError("no x"), "killTopology", TApplicationException),
])
def test_an_error_is_answered(
    error: Exception, method: str, kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    raised = answered(error, method)
    assert type(raised) is kind
    assert "no x" in (raised.message if kind is TApplicationException else raised.msg)
    # A bug is told here, too.
    assert [each.levelno for each in caplog.records] == [logging.ERROR] * isinstance(error, KeyError)


@given(st.data())
def test_a_call_that_is_cut_off_is_not_carried_out(data: st.DataObject) -> None:
    options = idl.RebalanceOptions(wait_secs=5, num_workers=3, num_executors={"count": 2})
    whole = call("rebalance", name="words", options=options)
    assert answer_to(whole[: data.draw(st.integers(0, len(whole) - 1))], CARRIED_OUT) == b""


@example(call("killTopology", name=b"\xff"))
@given(st.binary(max_size=200))
def test_noise_is_no_call(noise: bytes) -> None:
    assert answer_to(noise, CARRIED_OUT) == b""


def test_each_stream_of_a_spout_has_its_share() -> None:
    spout = {"kind": "spout", "outputs": {"a": {"emitted": 30}, "b": {"emitted": 10}}}
    done = {"emitted": 40, "transferred": 80, "acked": 20, "failed": 4, "complete_ms": 1.5}
    assert by_output(spout, done) == [
        {"stream": "a", "emitted": 30, "transferred": 60, "acked": 15, "failed": 3, "completeLatency": "1.500"},
        {"stream": "b", "emitted": 10, "transferred": 20, "acked": 5, "failed": 1, "completeLatency": "1.500"},
    ]


def test_an_executor_whose_worker_has_no_board_yet_has_done_nothing() -> None:
    executor = {"component": "split", "tasks": [1, 2], "worker": "node-1:6700"}
    begun: Any = SimpleNamespace(
        document={"executors": [executor]}, readings=[], report=SimpleNamespace(duration_secs=0.0)
    )
    [(found, done)] = by_executor(begun, "split")
    assert (found, done["executed"], done["capacity"]) == (executor, 0, 0.0)
