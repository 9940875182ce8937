"""Who gets past the guard of the web page: asked as the server asks it, without a server."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

from squall import UsageError
from squall.ipc.rundir import RunDir
from squall.ui.access import BODY_BYTES, Access, Guard, UiAddress, link_of, token_of, write_address

TOKEN = "t0ken"
HOST = "127.0.0.1:8090"


def access(epoch: str = "now", url: str = f"http://{HOST}", token: str = TOKEN) -> Access:
    return Access(lambda: token, UiAddress(url, 1, 1, epoch))


class Asked:
    """What came back for one request, and whether the application behind the guard saw it."""

    def __init__(self, guard_of: Access, read_only: bool = False, kind: str = "http", method: str = "GET",
                 path: str = "/", query: str = "", body: bytes = b"", **headers: str) -> None:
        self.sent: list[Any] = []
        self.reached = False
        self.body = b""
        given = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": kind, "method": method, "path": path, "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            self.sent.append(message)

        asyncio.run(Guard(self._app, guard_of, {"box"}, read_only)(scope, receive, send))

    async def _app(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self.reached, self.method = True, scope.get("method")
        self.ended = await receive()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def session(given: Access) -> str:
    return f"squall-8090={given.session_for(given.code())}"


@pytest.fixture
def door() -> Access:
    return access()


def test_head_is_answered_as_get(door: Access) -> None:
    assert Asked(door, method="HEAD", cookie=session(door)).method == "GET"


@pytest.mark.parametrize(("url", "words"), [
    (f"http://{HOST}", {"HttpOnly", "SameSite=Strict", "Path=/"}), ("https://127.0.0.1:8090", {"Secure"}),
])
def test_a_code_works_once_and_gives_a_session(url: str, words: set[str]) -> None:
    door = access(url=url)
    code = door.code()
    first = Asked(door, path="/enter", query=f"code={code}")
    assert (first.status, first.headers[b"location"]) == (303, b"/")
    cookie = first.headers[b"set-cookie"].decode()
    assert words <= set(cookie.split("; "))
    assert Asked(door, cookie=cookie.partition(";")[0]).reached
    assert Asked(door, path="/enter", query=f"code={code}").status == 401


def test_a_code_is_for_one_server_process_and_a_session_outlives_it(door: Access) -> None:
    before = access("before")
    assert before.session_for(door.code()) is None
    assert Asked(door, cookie=session(before)).reached


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": f"Basic {TOKEN}"},
        {"cookie": "squall-8090=x.y.z"}, {"cookie": "\xff;=;squall-8090"}, {"authorization": "Bearer \xff"},
        {"cookie": session(access(token="of another cluster"))},
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_stranger_is_let_in_nowhere(kind: str, headers: dict[str, str]) -> None:
    asked = Asked(access(), kind=kind, path="/api/squall/v1/cluster", **headers)
    assert not asked.reached
    assert asked.sent[0].get("status", asked.sent[0].get("code")) in (401, 1008)


def test_the_token_lets_programs_do_everything(door: Access) -> None:
    assert Asked(door, method="POST", authorization=f"Bearer {TOKEN}").reached


def test_a_wrong_token_is_not_mended_by_a_session(door: Access) -> None:
    assert Asked(door, cookie=session(door), authorization="Bearer wrong").status == 401


@pytest.mark.parametrize(("hosts", "is_ours"), [
    (["evil.example", "evil.example:8090", "127.0.0.1.evil.example", ""], False),
    (["localhost:8090", "box:8090", "127.0.0.1:8090", "[::1]:8090", "192.0.2.7"], True),
])
def test_a_name_that_was_pointed_at_us_is_refused(door: Access, hosts: list[str], is_ours: bool) -> None:
    for host in hosts:
        asked = Asked(door, host=host, authorization=f"Bearer {TOKEN}")
        assert (asked.reached, asked.sent[:1] and asked.status) == ((True, []) if is_ours else (False, 403)), host


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8090", "http://127.0.0.1:8091"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_another_origin_is_refused(door: Access, kind: str, origin: str) -> None:
    assert not Asked(door, kind=kind, origin=origin, cookie=session(door)).reached
    assert Asked(door, kind=kind, origin=f"http://{HOST}", cookie=session(door)).reached


def test_a_change_by_a_session_needs_the_header_that_no_form_can_send(door: Access) -> None:
    assert Asked(door, method="POST", cookie=session(door)).status == 403
    assert Asked(door, method="POST", cookie=session(door), x_squall_csrf="1").reached


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_read_only_lets_no_change_through(door: Access, method: str) -> None:
    assert Asked(door, read_only=True, method=method, authorization=f"Bearer {TOKEN}").status == 403
    assert Asked(door, read_only=True, authorization=f"Bearer {TOKEN}").reached


@pytest.mark.parametrize("length", [str(BODY_BYTES + 1), "9" * 30, "-1", "x", "²"])
def test_a_long_body_is_refused_by_its_length(door: Access, length: str) -> None:
    assert Asked(door, method="POST", authorization=f"Bearer {TOKEN}", content_length=length).status == 413


def test_a_body_that_tells_no_length_is_cut(door: Access) -> None:
    asked = Asked(door, method="POST", authorization=f"Bearer {TOKEN}", body=bytes(BODY_BYTES + 1))
    assert asked.ended == {"type": "http.disconnect"}


def test_a_stranger_is_told_of_health_and_a_browser_how_to_come_in(door: Access) -> None:
    assert Asked(door, path="/healthz").status == 200
    assert b"squall ui --link" in Asked(door, accept="text/html").sent[1]["body"]


def test_the_token_is_made_once_for_its_owner_alone(run_dir: RunDir) -> None:
    token = token_of(run_dir)
    assert token_of(run_dir) == token
    assert stat.S_IMODE(run_dir.ui_token.stat().st_mode) == 0o600
    assert len(token) >= 32
    assert run_dir.ui_token.parent == run_dir.path


def test_a_link_needs_a_page_that_runs(run_dir: RunDir) -> None:
    with pytest.raises(UsageError, match="squall ui"):
        link_of(run_dir)
    address = write_address(run_dir, "http://127.0.0.1:8090")
    assert address.pid == os.getpid()
    url, _, code = link_of(run_dir).partition("/enter?code=")
    assert url == "http://127.0.0.1:8090"
    assert Access(lambda: token_of(run_dir), address).session_for(code)


def test_another_token_ends_all_sessions_and_an_empty_one_lets_nobody_in(run_dir: RunDir) -> None:
    access = Access(lambda: token_of(run_dir), UiAddress(f"http://{HOST}", 1, 1, "e"))
    known, token = session(access), token_of(run_dir)
    assert (access.is_session(known), access.is_token(f"Bearer {token}")) == (True, True)
    run_dir.ui_token.unlink()
    assert (access.is_session(known), access.is_token(f"Bearer {token}")) == (False, False)
    run_dir.ui_token.write_text("\n")
    with pytest.raises(UsageError, match=r"ui\.token is empty: remove it"):
        access.is_token("Bearer ")
