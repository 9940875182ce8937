"""Checks Squall's JSON documents against their schemas in docs/schemas.

`python -m tests.schemas` makes the schemas of reports and statuses from their classes.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

from squall.engine.report import failure_log, run_report
from squall.engine.report.document import VERSIONS, schema_of
from squall.scheduler.client import statuses

SCHEMAS = Path(__file__).resolve().parents[1] / "docs" / "schemas"
CLASSES: dict[str, Any] = {**vars(failure_log), **vars(run_report), **vars(statuses)}
MADE = {
    "run": ("RunReport", "squall run --json, squall submit --until-drained --json, RunReport.to_json()"),
    "status": ("Status", "squall status NAME --json"), "cluster": ("ClusterStatus", "squall status --json"),
    "list": ("TopologyList", "squall list --json"), "ps": ("ProcessList", "squall ps --json"),
}


def made(name: str) -> dict[str, Any]:
    """The schema of a document by its class, with the texts below the fields."""
    kind, title = MADE[name]
    _, classes = schema_of(CLASSES[kind], "#/$defs/{name}")
    for each, part in classes.items():
        for field, text in texts(CLASSES[each]).items():
            part["properties"][field]["description"] = text
    own = classes.pop(kind)
    fields = {"schema": {"const": f"squall/{name}"}, "version": {"const": VERSIONS[name]}, **own["properties"]}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "type": "object"}
    return {**head, "properties": fields, "required": [*fields], "$defs": classes}


def texts(kind: type) -> dict[str, str]:
    """The texts below the fields of a class and of its bases."""
    return {
        field: " ".join(text.split())
        for base in reversed(kind.__mro__) if base.__module__.startswith("squall.")
        for field, text in re.findall(r'(?ms)^    (\w+): [^\n]*\n    """(.+?)"""$', inspect.getsource(base))
    }


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
    for name in MADE:
        (SCHEMAS / f"{name}.json").write_text(json.dumps(made(name), indent=2) + "\n", encoding="utf-8")
