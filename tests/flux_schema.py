"""Makes docs/schemas/flux.json from the table that Flux files are read by: `python -m tests.flux_schema`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from squall.connect.flux_parts import TopologyDef
from tests.schemas import SCHEMAS

VARIABLE = {"type": "string", "pattern": r"^\$\{[^{}]+\}$"}


def flux_schema() -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A Flux file of Squall's"}
    made: dict[str, Any] = with_variables(head | msgspec.json.schema(TopologyDef))
    return made


def with_variables(part: Any) -> Any:
    """Where a number, a choice or a truth value stands, `${NAME}` may stand, too."""
    if isinstance(part, list):
        return [with_variables(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") in ("integer", "number", "boolean") or "enum" in part:
        kept = {key: part[key] for key in ("description", "default") if key in part}
        return {"anyOf": [{key: value for key, value in part.items() if key not in kept}, VARIABLE], **kept}
    return {key: with_variables(value) for key, value in part.items()}


if __name__ == "__main__":
    (SCHEMAS / "flux.json").write_text(json.dumps(flux_schema(), indent=2) + "\n", encoding="utf-8")
