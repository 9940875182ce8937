"""Checks Squall's JSON documents against their schemas in docs/schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parents[1] / "docs" / "schemas"


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def mistakes(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document by the schema that it names; a field that the schema does not know, too."""
    import jsonschema

    own = _closed(schema(document["schema"].removeprefix("squall/")))
    jsonschema.Draft202012Validator.check_schema(own)
    checks = jsonschema.Draft202012Validator(own)
    return [f"{error.json_path}: {error.message[:300]}" for error in checks.iter_errors(document)]


def _closed(part: Any) -> Any:
    """The schema, but that objects may have no other fields: later versions may add some, this one must name all."""
    if isinstance(part, list):
        return [_closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(value) for key, value in part.items()}
    if "properties" in part and "type" in part:
        closed.setdefault("additionalProperties", False)
    return closed
