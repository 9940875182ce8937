"""Our REST API is what its OpenAPI description says, whatever is sent to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from squall.scheduler.common.role import RoleKind, processes_of
from tests.process.ui_parts import Served, served
from tests.process.waiting import wait_for

PREFIX = "/api/squall/v1"
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def busy() -> Iterator[Served]:
    with served() as one:
        one.start("words")
        one.start("spare")
        wait_for("a history", lambda: one.get(f"{PREFIX}/topologies/words/history")["points"])
        yield one


@pytest.fixture(scope="module")
def schema(busy: Served) -> Any:
    return schemathesis.openapi.from_url(f"{busy.address}{PREFIX}/openapi.json")


def post(one: Served, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        one.address + PREFIX + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_answers_are_what_the_description_says(schema: Any) -> None:
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == 25
    for one in operations:
        print(one.label)

        @hypothesis.settings(max_examples=3, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(case=one.as_strategy(), known=hypothesis.strategies.booleans())
        def try_it(case: schemathesis.Case, known: bool) -> None:
            if known and "name" in case.path_parameters:
                # Orders go to the one that may be lost.
                case.path_parameters["name"] = "words" if case.method.upper() == "GET" else "spare"
            case.call_and_validate(checks=CHECKS)

        try_it()


def test_a_component_is_told_with_its_windows_and_tasks(busy: Served) -> None:
    split = busy.get(f"{PREFIX}/topologies/words/components/split")
    assert split["component"]["inputs"] == [
        {"component": "lines", "stream": "default", "grouping": "shuffle", "fields": []}
    ]
    assert set(split["windows"]) == {"600", "10800", "86400", ":all-time"}
    assert split["windows"][":all-time"]["executed"] > 0
    assert len(split["tasks"]) == 2


def test_history_has_rates_latencies_and_marks(busy: Served) -> None:
    def told() -> Any:
        found = busy.get(f"{PREFIX}/topologies/words/history?window_secs=300&points=100")
        return found if "worker died" in {mark["kind"] for mark in found["marks"]} else None

    code, begun = post(busy, "/inject", {"line": "kill worker words/split[0]"})
    assert code == 200, begun
    worker = begun[0]["victims"][0]["name"]
    history = wait_for("the mark of the death", told)
    texts = {mark["kind"]: mark["text"] for mark in history["marks"]}
    assert texts["worker died"].startswith(worker)
    assert texts["fault began"].startswith("kill")
    measured = [point for point in history["points"] if point["p50_ms"] is not None]
    assert all(0 < point["p50_ms"] <= point["p99_ms"] for point in measured)
    assert any(point["acked_per_sec"] > 0 for point in measured)


@pytest.mark.parametrize(
    ("path", "body", "code", "why"),
    [
        ("/topologies/nobody/kill", {}, 404, "there is no topology 'nobody'"),
        ("/topologies/words/rebalance", {"workers": "many"}, 400, "body.workers: Input should be a valid integer"),
        ("/topologies/words/rebalance", {"executors": {"nobody": 1}}, 400, "nobody"),
        ("/topologies/words/dead-letters/replay", {"ids": ["000000000000"]}, 400, "there is no dead letter"),
        ("/inject", {"line": "nonsense"}, 400, "fault 'nonsense' is unknown"),
    ],
)
def test_a_mistake_is_one_line(busy: Served, path: str, body: Any, code: int, why: str) -> None:
    found, document = post(busy, path, body)
    assert found == code
    assert why in document["error"]
    assert "\n" not in document["error"]


def test_an_order_without_nimbus_is_refused_at_once(busy: Served) -> None:
    [nimbus] = processes_of(busy.cluster.run_dir, RoleKind.NIMBUS)
    nimbus.suspend()
    try:
        code, document = post(busy, "/topologies/words/deactivate", {})
        assert (code, "Nimbus" in document["error"]) == (503, True)
        assert busy.get(f"{PREFIX}/topologies/words")["name"] == "words"
    finally:
        nimbus.resume()
