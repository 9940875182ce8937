"""Squall's JSON documents: their names and versions, and how they are written.

Guarantees
    * Each begins with `schema` and `version`. `docs/schemas/` describes it by a JSON Schema. A version stays the same
      while fields are only added; it grows when a field goes, or changes its meaning.
    * What is written is one document by RFC 8259, in ASCII. JSON has no number for NaN and the infinities, which users'
      gauges and histograms may hold: they become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
VERSIONS = {
    "run": 1, "status": 1, "cluster": 1, "list": 1, "ps": 1, "verify-by-key": 1, "chaos": 1,
    "prepare": 1, "spark-plan": 1,
}  # fmt: skip


def with_schema(name: str, described: Any) -> dict[str, Any]:
    """The document of an object, with its head."""
    return {"schema": f"squall/{name}", "version": VERSIONS[name], **to_document(described)}


def strict_json(document: Any, *, sort_keys: bool = False) -> str:
    """The document as indented JSON."""
    return json.dumps(_finite(document), indent=2, sort_keys=sort_keys, allow_nan=False)


def _finite(document: Any) -> Any:
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, Mapping):
        return {key: _finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return document


def to_document(described: Any) -> dict[str, Any]:
    """The fields of an object, as a document of the types that JSON knows."""
    document: dict[str, Any] = msgspec.to_builtins(described)
    return document


def schema_of(kind: Any, ref_template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schema of a type of documents, and by name those of the classes to which it refers. A document has all
    fields, those with a default, too; a newer Squall may add some."""
    (schema,), classes = msgspec.json.schema_components([kind], ref_template=ref_template)
    for each in classes.values():
        if "properties" in each:
            each["required"] = list(each["properties"])
            each.pop("additionalProperties", None)
    return schema, classes
