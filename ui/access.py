"""Who may use the web page and the REST API of a cluster: the guard before all of their requests and web sockets.

Guarantees
    * Nothing but /healthz is answered without a session or the token. Programs send `Authorization: Bearer TOKEN`;
      browsers get a session from a link with a code that works once, within ten minutes, at one server process.
    * Another page cannot use a visitor's session: the Host must be an address or a name of ours (a name that somebody
      points at us is refused), the Origin must be ours, the cookie is SameSite=Strict and HttpOnly, and a request that
      is not GET or HEAD and comes with a cookie needs the header `X-Squall-CSRF`, which no form can send.
    * With `read_only` nothing but GET, HEAD and web sockets come through; `ClusterApi` refuses orders of the latter.
    * Each answer of the guard's own ends its connection, so a stranger keeps none open.
    * A client that does not take its answer within `SLOW_SECS` is cut off, and so is a longer body than `BODY_BYTES`.

Relies on: the file `ui.token` of the run directory, which its owner alone can read: whoever can is let in. Codes and
sessions are signed with it, so no process needs to tell another which ones it gave out.
Thread: any for links; the guard runs in the server's event loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Callable
from functools import partial
from http.cookies import CookieError, SimpleCookie

import msgspec
from itsdangerous import BadSignature, TimestampSigner
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain
from squall.ipc.private import naming, opener
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process

CODE_SECS, SESSION_SECS = 600, 7 * 24 * 3600
BODY_BYTES = 1 << 20
SLOW_SECS = 20.0
CSRF_HEADER = "x-squall-csrf"
_POLICY = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
"""Nothing from elsewhere. Vue's templates need eval."""
_HEADERS = [
    (b"content-security-policy", _POLICY), (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")
]
# Closed, for the server waits without end for the rest of a second request: 199 strangers would lock the page.
_OWN_HEADERS = {"connection": "close", "cache-control": "no-store"}
HOW_TO = "`squall ui --link` prints a new link"


class UiAddress(msgspec.Struct, frozen=True):
    """Where the page of a cluster is, and which process serves it."""

    url: str
    pid: int
    started_ticks: int
    epoch: str
    """Of this process alone: codes for an earlier one are void, so none works twice."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def token_of(run_dir: RunDir) -> str:
    """The token of a cluster; made if there is none. UsageError if its file is empty."""
    path = run_dir.ui_token
    if not path.exists():
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with naming(path), open(temporary, "x", encoding="utf-8", opener=opener) as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    token = path.read_text("utf-8").strip()
    if not token:
        raise UsageError(f"{path} is empty: remove it, and another token is made")
    return token


def running_address(run_dir: RunDir) -> UiAddress | None:
    """Where the page is; None if no process serves it."""
    address = last_address(run_dir)
    return address if address and process.lives(address.pid, address.started_ticks) else None


def last_address(run_dir: RunDir) -> UiAddress | None:
    """Where the page was served last, whether the process lives or not."""
    try:
        return msgspec.json.decode(run_dir.ui_address.read_bytes(), type=UiAddress)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_address(run_dir: RunDir, url: str) -> UiAddress:
    """Note that this process serves the page from now on."""
    pid = os.getpid()
    address = UiAddress(url, pid, process.start_time_ticks(pid), secrets.token_hex(8))
    temporary = run_dir.ui_address.with_suffix(".new")
    with naming(run_dir.ui_address), open(temporary, "wb", opener=opener) as file:
        file.write(msgspec.json.encode(address))
    temporary.replace(run_dir.ui_address)
    return address


def link_of(run_dir: RunDir) -> str:
    """A link that lets one browser in, once. UsageError if no process serves the page."""
    address = running_address(run_dir)
    if address is None:
        raise UsageError(f"no web page runs for the cluster in {run_dir.path}: `squall ui` starts it")
    return f"{address.url}/enter?code={Access(partial(token_of, run_dir), address).code()}"


def token_in(authorization: str) -> str:
    """The token that a request carries: `Bearer TOKEN`, or the password of `Basic`, which programs made for Storm read
    from ~/.netrc; "" if there is none."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2] if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""


class Access:
    """Gives out codes and sessions, and knows them again."""

    def __init__(self, token: Callable[[], str], address: UiAddress) -> None:
        """`token` reads the present token: another one ends all sessions."""
        self._token = token
        self._epoch = address.epoch
        self._used: set[bytes] = set()
        self.is_tls = address.url.startswith("https:")
        # Cookies do not know ports: two clusters of one machine must not take each other's for theirs.
        self.cookie = f"squall-{address.port}"

    def _signed(self, salt: str) -> str:
        return TimestampSigner(self._token(), salt=salt).sign(secrets.token_urlsafe(9)).decode()

    def _nonce(self, salt: str, text: str, max_age: int) -> bytes | None:
        """What was signed; None if that was not here, or too long ago."""
        try:
            return TimestampSigner(self._token(), salt=salt).unsign(text, max_age=max_age)
        except BadSignature:
            return None

    def code(self) -> str:
        """A code that works once."""
        return self._signed(f"code {self._epoch}")

    def session_for(self, code: str) -> str | None:
        """A session for a code; None if it is wrong, too old, or was used."""
        nonce = self._nonce(f"code {self._epoch}", code, CODE_SECS)
        if nonce is None or nonce in self._used:
            return None
        self._used.add(nonce)
        return self._signed("session")

    def is_session(self, cookies: str) -> bool:
        """Whether a Cookie header holds a session of ours."""
        try:
            cookie = SimpleCookie(cookies)[self.cookie].value
        except (KeyError, CookieError):
            return False
        return self._nonce("session", cookie, SESSION_SECS) is not None

    def is_token(self, authorization: str) -> bool:
        """Whether an Authorization header holds the token."""
        return hmac.compare_digest(token_in(authorization).encode(), self._token().encode())


class Guard:
    """The ASGI application that lets requests through to another."""

    def __init__(self, app: ASGIApp, access: Access, names: set[str], read_only: bool) -> None:
        """`names`: those by which this machine may be asked, besides its addresses and localhost."""
        self._app, self._access, self._read_only = app, access, read_only
        self._names = {"localhost", *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope.get("method") == "HEAD":
            # The server leaves out the body.
            scope = {**scope, "method": "GET"}
        headers, is_http = Headers(scope=scope), scope["type"] == "http"
        send = _with_limits(send)
        if refusal := self._stranger(headers):
            await _refuse(scope, receive, send, 403, refusal)
        elif is_http and scope["path"] == "/healthz":
            await PlainTextResponse("ok\n", headers=_OWN_HEADERS)(scope, receive, send)
        elif is_http and scope["path"] == "/enter":
            await self._enter(scope, receive, send)
        elif why := self._unknown(headers):
            await _refuse(scope, receive, send, 401, why)
        elif refusal := self._forbidden(scope, headers):
            await _refuse(scope, receive, send, 403, refusal)
        elif int(_digits(headers.get("content-length", "0"))) > BODY_BYTES:
            await _refuse(scope, receive, send, 413, f"A body may have {BODY_BYTES} bytes.")
        else:
            await self._app(scope, _counted(receive) if is_http else receive, send)

    def _stranger(self, headers: Headers) -> str:
        """Why a request is not meant for us, or not from our page; "" if it may be."""
        host = headers.get("host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.lower() not in self._names and not _is_address(name.strip("[]")):
            return "This is not the host that you asked for."
        origin = headers.get("origin")
        if origin is not None and origin != f"{'https' if self._access.is_tls else 'http'}://{host}":
            return "This request comes from another page."
        return ""

    def _unknown(self, headers: Headers) -> str:
        """Why a client may not come in; "" if it may."""
        given, access = headers.get("authorization"), self._access
        try:
            known = access.is_session(headers.get("cookie", "")) if given is None else access.is_token(given)
        except (UsageError, OSError) as error:
            return plain(error)
        return "" if known else f"You have no session here: {HOW_TO}."

    def _forbidden(self, scope: Scope, headers: Headers) -> str:
        """Why a known client may not do this; "" if it may."""
        if scope["type"] != "http" or scope["method"] == "GET":
            return ""
        if self._read_only:
            return "This server is read-only."
        if "authorization" not in headers and CSRF_HEADER not in headers:
            return "A change by a browser's session needs the header X-Squall-CSRF: 1."
        return ""

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        code = Request(scope).query_params.get("code", "")
        session = self._access.session_for(code) if scope["method"] == "GET" else None
        if session is None:
            await _refuse(scope, receive, send, 401, f"This link was used, or is too old: {HOW_TO}.")
            return
        cookie = f"{self._access.cookie}={session}; Path=/; Max-Age={SESSION_SECS}; HttpOnly; SameSite=Strict"
        cookie += "; Secure" if self._access.is_tls else ""
        await Response(None, 303, {**_OWN_HEADERS, "location": "/", "set-cookie": cookie})(scope, receive, send)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digits(text: str) -> str:
    return text if text.isascii() and text.isdigit() and len(text) < 16 else str(BODY_BYTES + 1)


def _with_limits(send: Send) -> Send:
    """Send with our headers, and to no one who does not read."""

    async def limited(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        async with asyncio.timeout(SLOW_SECS):
            await send(message)

    return limited


def _counted(receive: Receive) -> Receive:
    """Receive no longer body than allowed: the client has gone then, as far as the application can tell."""
    came = 0

    async def counted() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        return message if came <= BODY_BYTES else {"type": "http.disconnect"}

    return counted


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, why: str) -> None:
    """Answer with a line: a small page to browsers, JSON to programs."""
    if scope["type"] == "websocket":
        await receive()
        await WebSocketClose(1008, why)(scope, receive, send)
        return
    if "text/html" not in Headers(scope=scope).get("accept", ""):
        await JSONResponse({"error": why}, status, _OWN_HEADERS)(scope, receive, send)
        return
    html = (
        "<!doctype html><meta name=viewport content='width=device-width'><title>Squall</title><style>"
        "body{font:1rem/1.5 system-ui;margin:20vh auto;max-width:32rem;padding:0 1rem;color-scheme:light dark}</style>"
        f"<h1>Squall</h1><p>{why}</p>"
    )
    await HTMLResponse(html, status, _OWN_HEADERS)(scope, receive, send)
