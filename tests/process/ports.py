"""Ports on the loopback address for servers that cannot choose one themselves, and come back on the same one."""

from __future__ import annotations

import os
import socket


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on. They are below those that the kernel gives to connections, and where the
    search begins depends on the process, so that tests side by side find others."""
    found, port = list[int](), 10_000 + 32 * os.getpid() % 20_000
    while len(found) < count:
        port += 1
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
