"""Every JSON document that has a version has a schema, and the other way round."""

from __future__ import annotations

import pytest

from squall.engine.report.document import VERSIONS, with_schema
from tests.schemas import MADE, SCHEMAS, made, schema


def test_each_document_has_its_schema() -> None:
    # That of Flux files, which are read and not written, has no version: test_flux.py.
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {*VERSIONS, "flux"}
    for name, version in VERSIONS.items():
        fields = schema(name)["properties"]
        assert (fields["schema"], fields["version"]) == ({"const": f"squall/{name}"}, {"const": version})


@pytest.mark.parametrize("name", MADE)
def test_reports_and_statuses_are_described_by_their_classes(name: str) -> None:
    assert schema(name) == made(name), "run: python -m tests.schemas"


def test_the_head_comes_first() -> None:
    assert list(with_schema("list", {"a": 1})) == ["schema", "version", "a"]
