"""Serves `StormNimbus` at a port of the loopback address, by Thrift's framed transport and binary protocol.

Guarantees
    * Each call that can be read is answered, an error by an exception of Storm's or of Thrift's. What cannot be read,
      or says that it is longer than FRAME_BYTES (as HTTP does), ends its connection, and nothing else.
    * At most CONNECTIONS are open at once; further ones are closed as they come. A client that is silent, or reads
      nothing, keeps no other waiting.
    * It ends at once at SIGTERM and SIGINT; within seconds if Nimbus hangs.

Relies on
    * thriftpy2 for the protocol. Its server is not used: it shares a port in use, and believes each length.
    * Clients that mean no harm: who comes here can kill topologies, or have thriftpy2 skip two billion empty items.

Thread: one for each connection, the sampler's, and the main thread, which waits for signals.
"""

from __future__ import annotations

import io
import logging
import signal
import socketserver
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TException, TProcessor

from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.text import plain, text_of_error
from squall.ipc.rundir import RunDir
from squall.ui.cluster_api import ClusterApi
from squall.ui.sampler import Sampler
from squall.ui.thrift.storm_nimbus import StormNimbus, as_storm, idl

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
FRAME_BYTES = 1 << 20
CONNECTIONS = 200
_UNREADABLE = (EOFError, struct.error, UnicodeDecodeError, RecursionError, TException)


class _Frame(io.BytesIO):
    """Bytes that came. Behind their end there is nothing to skip: thriftpy2 would skip two billion items there."""

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if len(found) != size:
            raise EOFError
        return found


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while 0 < (size := int.from_bytes(self.rfile.read(4), "big")) <= FRAME_BYTES:
            frame = self.rfile.read(size)
            if len(frame) < size or not (answer := answer_to(frame, self.server.processor)):
                break
            self.wfile.write(len(answer).to_bytes(4, "big") + answer)


def answer_to(frame: bytes, processor: TProcessor) -> bytes:
    """Carry out a call, and return the frame that answers it; empty if it cannot be read."""
    try:
        name, number, result, call = processor.process_in(TBinaryProtocol(_Frame(frame), strict_decode=True))
    except _UNREADABLE:
        return b""
    if call is not None:
        try:
            result.success = call()
        except Exception as error:
            if not processor.handle_exception(as_storm(error), result):
                result = _failure(error)
    answer = io.BytesIO()
    is_failure = isinstance(result, TApplicationException)
    send = processor.send_exception if is_failure else processor.send_result
    send(TBinaryProtocol(answer), name, result, number)
    return answer.getvalue()


def _failure(error: Exception) -> TApplicationException:
    """What clients are told of an error for which a method has no exception."""
    if isinstance(error, SquallError):
        return TApplicationException(TApplicationException.INTERNAL_ERROR, plain(error))
    log.error("a call failed", exc_info=error)
    return TApplicationException(TApplicationException.INTERNAL_ERROR, text_of_error(error))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: ClusterApi, port: int) -> None:
        super().__init__((HOST, port), _Connection)
        self.port: int = self.server_address[1]
        self.processor = TProcessor(idl.Nimbus, StormNimbus(api, HOST, self.port))

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return threading.active_count() < CONNECTIONS

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that is gone
            super().handle_error(request, client_address)


def serve(run_dir: RunDir, port: int, tell: Callable[[str], None]) -> None:
    """Serve until told to end. `tell` is called with the address when it can be used."""
    sampler = Sampler(run_dir)
    api = ClusterApi(sampler)
    try:
        server = _Server(api, port)
    except OSError as error:
        raise UsageError(f"cannot serve at {HOST}:{port}: {error.strerror}") from None
    ends = {signal.SIGINT, signal.SIGTERM}
    with server:
        # Before any thread begins, so that only `sigwait` takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        sampler.start()
        threading.Thread(target=server.serve_forever, name="thrift", daemon=True).start()
        tell(f"{HOST}:{server.port}")
        signal.sigwait(ends)
    api.close()
    sampler.close()
