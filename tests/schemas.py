"""Checks Squall's JSON documents against their schemas in docs/schemas.

`python -m tests.schemas` makes the schemas of reports, statuses and Flux files from their classes.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import msgspec

from squall.connect.flux_parts import TopologyDef
from squall.engine.report import failure_log, run_report
from squall.engine.report.document import VERSIONS, schema_of
from squall.scheduler.client import statuses

SCHEMAS = Path(__file__).resolve().parents[1] / "docs" / "schemas"
CLASSES: dict[str, Any] = {**vars(failure_log), **vars(run_report), **vars(statuses)}
MADE = {
    "run": "RunReport", "status": "Status", "cluster": "ClusterStatus", "list": "TopologyList", "ps": "ProcessList",
}
VARIABLE = {"type": "string", "pattern": r"^\$\{[^{}]+\}$"}


def made(name: str) -> dict[str, Any]:
    """The schema of a document by its class, with the texts below the fields; its title is that of the file."""
    _, classes = schema_of(CLASSES[MADE[name]], "#/$defs/{name}")
    for each, part in classes.items():
        for field, text in texts(CLASSES[each]).items():
            part["properties"][field]["description"] = text
    own = classes.pop(MADE[name])["properties"]
    fields = {"schema": {"const": f"squall/{name}"}, "version": {"const": VERSIONS[name]}, **own}
    return {**schema(name), "properties": fields, "required": [*fields], "$defs": classes}


def texts(kind: type) -> dict[str, str]:
    """The texts below the fields of a class and of its bases."""
    return {
        field: " ".join(text.split())
        for base in reversed(kind.__mro__) if base.__module__.startswith("squall.")
        for field, text in re.findall(r'(?ms)^    (\w+): [^\n]*\n    """(.+?)"""$', inspect.getsource(base))
    }


def flux_schema() -> dict[str, Any]:
    head = {key: schema("flux")[key] for key in ("$schema", "title")}
    described: dict[str, Any] = with_variables(head | msgspec.json.schema(TopologyDef))
    return described


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


if __name__ == "__main__":
    for name, described in {**{name: made(name) for name in MADE}, "flux": flux_schema()}.items():
        (SCHEMAS / f"{name}.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
