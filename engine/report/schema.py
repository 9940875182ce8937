"""The names and versions of Squall's JSON documents.

Guarantees: such a document begins with `schema` and `version`. `docs/schemas/` describes each by a JSON Schema. A
version stays the same while fields are only added; it grows when a field goes, or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSIONS = {
    "run": 1, "status": 1, "cluster": 1, "list": 1, "ps": 1, "verify-by-key": 1, "chaos": 1,
    "prepare": 1, "spark-plan": 1,
}  # fmt: skip


def with_schema(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its head."""
    return {"schema": f"squall/{name}", "version": VERSIONS[name], **document}
