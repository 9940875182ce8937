"""Every JSON document that has a version has a schema, and the other way round."""

from __future__ import annotations

import re

from squall.engine.report.document import VERSIONS, with_schema
from tests.schemas import SCHEMAS, schema


def test_each_document_has_its_schema() -> None:
    # That of Flux files, which are read and not written, has no version: test_flux.py.
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {*VERSIONS, "flux"}
    for name, version in VERSIONS.items():
        fields = schema(name)["properties"]
        assert (fields["schema"], fields["version"]) == ({"const": f"squall/{name}"}, {"const": version})


def test_each_file_is_complete_and_copies_of_a_definition_are_equal() -> None:
    definitions: dict[str, tuple[str, object]] = {}
    for name in VERSIONS:
        text = (SCHEMAS / f"{name}.json").read_text(encoding="utf-8")
        own = schema(name).get("$defs", {})
        assert set(re.findall(r'"\$ref": "(.*?)"', text)) == {f"#/$defs/{definition}" for definition in own}, name
        for definition, content in own.items():
            first, there = definitions.setdefault(definition, (name, content))
            assert content == there, f"$defs/{definition} in {name}.json is not that of {first}.json"


def test_the_head_comes_first() -> None:
    assert list(with_schema("list", {"a": 1})) == ["schema", "version", "a"]
