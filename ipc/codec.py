"""Parcels to bytes and back.

Guarantees: `decode` returns what `encode` was given, values and types. A parcel that cannot be encoded is refused as a
whole; `WorkerCore.not_sent` finds the value.

Data is encoded by column, and rows that are kept as columns stay so: a column of plain text is joined and encoded in
one go (a third of pickle's time), the rest goes through pickle protocol 5. Buffers of 64 KiB and more are taken out of
the stream and travel beside it, so that they are copied once and never through pickle: numpy arrays and Arrow buffers
wherever they are, `bytes` and `bytearray` that are values of a tuple themselves (inside other objects pickle offers no
way to take them out).

A memoryview is sent as `bytes`. A value whose class raises while it is rebuilt costs its own tuple only: see
`ipc.partial_decode`.

Relies on: decoding only what a worker of the same topology sent (pickle executes what it is told to; see PROTOCOL.md).
"""

from __future__ import annotations

import contextlib
import pickle
from array import array
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

from squall.engine.api.columns import Columns
from squall.engine.api.failure import Failure
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Acks, BlockAcks
from squall.engine.flow.batch import Batch, BlockBatch
from squall.engine.flow.ids import Block, EdgeIds
from squall.engine.flow.member_columns import RowCounts
from squall.engine.flow.parcel import Parcel
from squall.engine.foreign.picklable import why_no_bytes
from squall.engine.foreign.text import text_of_error
from squall.ipc.partial_decode import Broken, rescue

OUT_OF_BAND_BYTES = 64 * 1024
"""Smaller buffers stay in the stream: a descriptor and a second copy would cost more (measured)."""

_SEPARATOR = "\x00"
_TEXT_ONLY, _INTS_ONLY = {str}, {int}
_BUFFERS = {bytes, bytearray, memoryview}

Buffers = Sequence[pickle.PickleBuffer]
Wrapped = dict[int, "_Bytes"]
"""By identity: a value that several tuples of a parcel hold is one at the receiver, too."""


class _Bytes:
    """Stands for long bytes during pickling: pickle would copy the value itself into its stream."""

    __slots__ = ("kind", "value")

    def __init__(self, value: bytes | bytearray | memoryview, kind: Callable[[Any], Any]) -> None:
        self.value = value
        self.kind = kind

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[[Any], Any], tuple[pickle.PickleBuffer]]:
        return self.kind, (pickle.PickleBuffer(self.value),)


def encode(parcel: Parcel) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The parcel as one byte string, and the big buffers that travel beside it.

    Raises ComponentError if a value cannot be pickled, MemoryError if there is no room for it.
    """
    buffers: list[pickle.PickleBuffer] = []
    wrapped: Wrapped = {}

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < OUT_OF_BAND_BYTES:
            return True
        buffers.append(buffer)
        return False

    try:
        content = (
            [_pack_batch(batch, wrapped) for batch in parcel.batches],
            _pack_ids(parcel.acks.xors.keys()),
            _pack_ids(parcel.acks.xors.values()),
            parcel.acks.masks,
            [(base, acks.members, acks.xors, acks.masks) for base, acks in parcel.acks.blocks.items()],
            parcel.inits,
            parcel.resets,
            [(root, _pack_failure(failure)) for root, failure in parcel.fails],
            [(task, root, failure and _pack_failure(failure)) for task, root, failure in parcel.answers],
        )
        return pickle.dumps(content, 5, buffer_callback=keep_in_band), buffers
    except MemoryError:
        raise
    except BaseException as error:  # a value's own code
        raise ComponentError(f"a parcel cannot be sent to another worker: {text_of_error(error)}") from error


def decode(data: bytes | memoryview, buffers: Sequence[Any] = ()) -> Parcel:
    """The parcel that `encode` was given. Tuples with values that cannot be rebuilt here are in its `unread` instead.

    Raises the decoder's own error if the parcel as a whole cannot be read.
    """
    parcel = Parcel()
    try:
        batches, *tracking = pickle.loads(data, buffers=buffers)
        is_whole = True
    except BaseException as error:  # a value's own code, or damaged bytes
        try:
            batches, *tracking = rescue(data, buffers)
        except BaseException as worse:
            raise error from worse
        is_whole = False
    for packed in batches:
        batch = _unpack_batch(packed)
        for piece in [batch] if is_whole else _readable(batch, parcel.unread):
            parcel.batches.append(piece)
            parcel.rows += len(piece.rows)
    _unpack_tracking(parcel, tracking)
    return parcel


def _unpack_tracking(parcel: Parcel, tracking: Sequence[Any]) -> None:
    roots, xors, masks, blocks, parcel.inits, parcel.resets, fails, answers = tracking
    parcel.acks = Acks(
        dict(zip(_unpack_ids(roots), _unpack_ids(xors), strict=True)), masks,
        {base: BlockAcks(*its) for base, *its in blocks},
    )
    if fails:
        parcel.fails = [(root, Failure(*failure)) for root, failure in fails]
    if answers:
        parcel.answers = [(task, root, failure and Failure(*failure)) for task, root, failure in answers]


def _readable(batch: Batch, unread: list[tuple[Batch, int, str]]) -> list[Batch]:
    """The pieces of a batch without the tuples that hold a value which could not be rebuilt: these are `unread`."""
    bad: dict[int, tuple[int, str]] = {}
    for index, row in enumerate(batch.rows):
        for position, value in enumerate(row):
            if type(value) is Broken:
                bad.setdefault(index, (position, value.why))
    new_edge, pieces, begin = EdgeIds().next, [], 0
    ends = {end for index in bad for end in (index, index + 1)} | {len(batch.rows)}
    for end in sorted(ends - {0}):
        piece = batch.split(end - begin, new_edge) if end - begin < len(batch.rows) else batch
        if begin in bad:
            unread.append((piece, *bad[begin]))
        else:
            pieces.append(piece)
        begin = end
    return pieces


def _pack_failure(failure: Failure) -> tuple[Any, ...]:
    return astuple(failure)


def _pack_ids(ids: Any) -> bytes:
    return array("Q", ids).tobytes()


def _unpack_ids(data: bytes) -> array[int]:
    ids = array("Q")
    ids.frombytes(data)
    return ids


def _pack_batch(batch: Batch, wrapped: Wrapped) -> tuple[Any, ...]:
    rows = batch.rows
    columns: Any
    if rows.__class__ is Columns:
        columns = len(rows), [_pack_whole(rows, position, wrapped) for position in range(len(rows.columns))]
    else:
        # Rows without values have no columns to count them by.
        columns = [_pack_column(column, wrapped) for column in zip(*rows, strict=True)] or len(rows)
    return batch.source, batch.stream, batch.target, *_pack_runs(batch), batch.others, columns


def _pack_runs(batch: Batch) -> tuple[Any, Any, Any]:
    """Where the runs begin, or how many rows each has; their trees, and their edges."""
    if not isinstance(batch, BlockBatch):
        return array("I", batch.starts).tobytes(), _pack_ids(batch.roots), _pack_ids(batch.edges)
    members = batch.members if isinstance(batch.members, range) else array("H", batch.members)
    return batch.run_rows.packed(), (*batch.block, members), batch.words


def _unpack_batch(packed: tuple[Any, ...]) -> Batch:
    source, stream, target, starts, trees, edges, others, columns = packed
    batch = Batch(source, stream, target)
    if isinstance(trees, tuple):
        *block, members = trees
        batch = BlockBatch(batch, Block(*block), members, RowCounts.unpack(starts), edges)
    else:
        batch.starts = array("I", starts).tolist()
        batch.roots = _unpack_ids(trees).tolist()
        batch.edges = _unpack_ids(edges).tolist()
    batch.others = others
    if isinstance(columns, int):
        batch.rows = [()] * columns
    elif isinstance(columns, tuple):
        length, packed_columns = columns
        batch.rows = rows = Columns(tuple(_unpack_whole(column, length) for column in packed_columns), length)
        for position, column in enumerate(packed_columns):
            if column.__class__ is bytes:
                rows.is_known_text(position)
    else:
        batch.rows = list(zip(*map(_unpack_column, columns), strict=True))
    return batch


def _pack_whole(rows: Columns, position: int, wrapped: Wrapped) -> Any:
    """A column of rows that are kept as columns; any but a list as the only part of a tuple."""
    column = rows.columns[position]
    if type(column) is not list:
        return (column,)
    if rows.is_text(position):
        text = _pack_text(column)
        return column if text is None else text
    return _pack_column(column, wrapped)


def _pack_text(column: Sequence[str]) -> bytes | None:
    """Plain texts as one; None if they hold what separates them."""
    joined = _SEPARATOR.join(column)
    return joined.encode("utf-8", "surrogatepass") if joined.count(_SEPARATOR) == len(column) - 1 else None


def _unpack_whole(packed: Any, length: int) -> Any:
    """A column of rows that are kept as columns; one that could not be rebuilt stands for each of its values."""
    if packed.__class__ is tuple:
        (packed,) = packed
        return [packed] * length if isinstance(packed, Broken) else packed
    return _unpack_column(packed)


def _pack_column(column: Sequence[Any], wrapped: Wrapped) -> bytes | array[int] | list[Any]:
    types = set(map(type, column))
    if types == _TEXT_ONLY:
        text = _pack_text(column)
        if text is not None:
            return text
    elif types == _INTS_ONLY:
        return _pack_ints(column)
    elif not types.isdisjoint(_BUFFERS):
        return [_pack_buffer(value, wrapped) if type(value) in _BUFFERS else value for value in column]
    return column if type(column) is list else list(column)


def _pack_ints(column: Sequence[int]) -> array[int] | list[int]:
    """Whole numbers of 64 bits as an array: pickle takes four times as long for each."""
    for code in "qQ":
        with contextlib.suppress(OverflowError):
            return array(code, column)
    return column if type(column) is list else list(column)


def _pack_buffer(value: bytes | bytearray | memoryview, wrapped: Wrapped) -> _Bytes | bytes | bytearray:
    if type(value) is memoryview:
        why = why_no_bytes(value)
        if why is not None:
            raise ComponentError(why)
        if not value.c_contiguous:
            return value.tobytes()
        kind: Callable[[Any], Any] = bytes
        if value.nbytes < OUT_OF_BAND_BYTES:
            return bytes(value)
    elif len(value) < OUT_OF_BAND_BYTES:
        return value
    else:
        kind = type(value)
    known = wrapped.get(id(value))
    if known is None:
        known = wrapped[id(value)] = _Bytes(value, kind)
    return known


def _unpack_column(packed: Any) -> list[Any]:
    if packed.__class__ is bytes:
        return packed.decode("utf-8", "surrogatepass").split(_SEPARATOR)
    return packed.tolist() if packed.__class__ is array else packed
