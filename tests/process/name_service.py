"""An HTTP service for the enrichment example: answers with a customer's name, and every fifth time with an error.

    python -m tests.process.name_service

Prints its port, and runs until its stdin ends.
"""

from __future__ import annotations

import http.server
import itertools
import json
import sys
import threading

REQUESTS = itertools.count(1)


class Names(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"name": f"customer {self.path.rpartition('/')[2]}"}).encode()
        self.send_response(200 if next(REQUESTS) % 5 else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to stderr."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed hangs up; its test knows."""


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Names) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
