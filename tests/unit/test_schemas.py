"""Every JSON document that has a version has a schema, and the other way round."""

from __future__ import annotations

import json

from squall.engine.report.run_report import build_report
from squall.engine.report.schema import VERSIONS, with_schema
from tests.schemas import SCHEMAS, schema


def test_each_document_has_its_schema() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(VERSIONS)
    for name, version in VERSIONS.items():
        fields = schema(name)["properties"]
        assert (fields["schema"], fields["version"]) == ({"const": f"squall/{name}"}, {"const": version})


def test_the_head_comes_first() -> None:
    assert list(with_schema("list", {"a": 1})) == ["schema", "version", "a"]


def test_a_report_says_what_it_is() -> None:
    document = json.loads(build_report("words", [], 1.0, [], drained=True).to_json())
    assert (document["schema"], document["version"], document["topology"]) == ("squall/run", VERSIONS["run"], "words")
