"""Writes documents as JSON that every parser accepts.

Guarantees: the result is one document by RFC 8259, in ASCII. JSON has no number for NaN and the infinities, which
users' gauges and histograms may hold: they become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


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
