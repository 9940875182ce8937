"""HttpSink: posts rows as JSON, and acks them when the other side answers 2xx.

Guarantees
    * An answer that may be another one later (a token or a path that is wrong, 429, 5xx, none) counts against no row:
      the request is made again, after `Retry-After` if that is given.
    * Rows fail, each alone, when the other side refuses what they hold (400, 409, 413, 422): of a batch, halves are
      sent until it is known which.

Thread: the task's own.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from squall.connect.outside import check_secret, check_url, shown_url
from squall.connect.sink import Sink
from squall.engine.errors import UsageError
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.text import plain, repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext

_REFUSES = frozenset({400, 409, 413, 422})
_JSON = msgspec.json.Encoder(enc_hook=str)
_MOST_WAIT_SECS = 60.0
"""Longest time for which `Retry-After` is kept to."""
_IDLE_SECS = 1.0
"""Time after which a connection is not used again, as the other side may be ending it."""
_SHOWN_CHARACTERS, _MOST_READ_BYTES = 200, 1 << 16


class HttpSink(Sink):
    """A bolt that posts its rows, as objects of JSON, one a line: `HttpSink("https://logs.example.org/in")`."""

    _used_at = 0.0
    """When the last answer came."""

    def __init__(self, url: str, *, token: str = "", each: bool = False, timeout_secs: float = 10.0) -> None:
        """`url` may have `${NAME}`s. `token`: `${NAME}`, sent as `Authorization: Bearer ...`. `each`: a request a
        row. `timeout_secs`: the longest wait for the other side; less than half of `execute_timeout_secs`."""
        check_url("HttpSink", url, "http", "https")
        if "@" in urlsplit(url).netloc or not urlsplit(url).hostname:
            raise UsageError(f"HttpSink has url {shown_url(url)}; allowed: http://HOST/PATH, and a token by itself")
        if token:
            check_secret("HttpSink", "token", token)
        self._url, self._token, self._each, self._timeout_secs = url, token, each, timeout_secs

    def connect(self, context: TopologyContext) -> None:
        token, parts = self.fill(self._token), urlsplit(self.fill_url(self._url))
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not ((token + target).isascii() and (token + target).isprintable()):
            raise UsageError(f"HttpSink has more than printable ASCII in its token, or in {self._url} when filled in")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = self._other_side = kind(parts.hostname or "", parts.port, timeout=self._timeout_secs)
        self._target = target
        self._headers = {"Content-Type": "application/json" if self._each else "application/x-ndjson"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def write(self, batch: ColumnBatch) -> Mapping[int, str]:
        refused, lines = dict[int, str](), dict[int, bytes]()
        for row, values in enumerate(zip(*(values_of(batch[name]) for name in batch.fields), strict=True)):
            try:
                lines[row] = _JSON.encode(dict(zip(batch.fields, values, strict=True)))
            except Exception as error:  # also of a value's own code
                refused[row] = f"HttpSink cannot send {repr_of(values)}: {text_of_error(error)}"
        if time.monotonic() > self._used_at + _IDLE_SECS:
            self._connection.close()  # a request opens it again
        waiting = [[row] for row in reversed(lines)] if self._each or not lines else [list(lines)]
        ends_at = time.monotonic() + self._timeout_secs
        while waiting:
            rows = waiting.pop()
            is_late = time.monotonic() > ends_at
            if is_late and self._each:
                raise ConnectionError(f"{self._url} takes {len(lines) - len(waiting)} rows in {self._timeout_secs:g} s")
            if not (why := self._refusal(b"\n".join([lines[row] for row in rows]))):
                continue
            if len(rows) == 1 or is_late:
                refused.update(dict.fromkeys(rows, why))
            else:
                half = len(rows) // 2
                waiting += [rows[half:], rows[:half]]
        self._used_at = time.monotonic()
        return refused

    def _refusal(self, body: bytes) -> str:
        """Post rows; return why they were refused, "" if they were not."""
        try:
            self._connection.request("POST", self._target, body, self._headers)
            response = self._connection.getresponse()
            text = response.read(_MOST_READ_BYTES).decode("utf-8", "replace")
            if not response.isclosed():
                self._connection.close()  # the rest of a long answer is in the way of the next one
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"{self._url}: {self.hide(text_of_error(error))}") from None
        if 200 <= response.status < 300:
            return ""
        shown = self.hide(plain(f"{response.status} {response.reason} {text[:_SHOWN_CHARACTERS]}").strip())
        why = f"{self._url} answers {shown}"
        if response.status in _REFUSES:
            return why
        wait = response.headers.get("Retry-After", "")
        if wait.isascii() and wait.isdigit():
            self.least_delay_secs = min(float(wait), _MOST_WAIT_SECS)
        raise ConnectionError(why)
