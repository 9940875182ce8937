"""Serves a page of the pages that are asked for most, out of Redis: `python page.py REDIS PORT`."""

import html
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

PAGE = """<!doctype html><meta http-equiv="refresh" content="1"><title>Top ten</title>
<h1>Asked for most</h1><table>{rows}</table>"""


class TopTen(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        top = self.server.redis.zrevrange("pages", 0, 9, withscores=True)
        rows = "".join(f"<tr><td>{html.escape(page.decode())}<td>{count:.0f}" for page, count in top)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE.format(rows=rows).encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), TopTen)
    server.redis = redis.Redis.from_url(sys.argv[1])
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
