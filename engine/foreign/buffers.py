"""Buffers of users' values: the bytes in them, and whether they are bytes at all.

Pure. Thread: any.
"""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(":[^:]*:")
"""Of a field, in the format of a structure."""


def why_no_bytes(view: memoryview) -> str | None:
    """Why the memory of a view means nothing to another process; None if it does."""
    try:
        kinds = view.format
    except ValueError as error:  # it was released
        return str(error)
    return "its memory holds Python objects, not bytes" if "O" in _NAME.sub("", kinds) else None


def view_of(value: Any) -> memoryview:
    """The bytes of a value that has a buffer, read-only and not copied. Raises TypeError if there are none."""
    try:
        view = memoryview(value)
    except (ValueError, BufferError) as error:
        view = _untyped(value, error)
    if why_no_bytes(view) is not None:
        raise TypeError(why_no_bytes(view))
    return view.toreadonly()


def _untyped(value: Any, error: Exception) -> memoryview:
    """The view of an array whose elements have no format of a buffer, as numpy's times have none."""
    try:
        return memoryview(value.view(f"V{value.itemsize}"))
    except (AttributeError, TypeError, ValueError):
        raise TypeError(str(error)) from None
