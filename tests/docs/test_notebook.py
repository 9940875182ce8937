"""The notebook in examples/ runs as in a kernel: cells in `__main__`, no file, beside an event loop and ZeroMQ.

Not nbclient: with ipykernel it would bring some thirty packages, for a protocol that Squall has no part in.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.process.cli import ROOT, environment

KERNEL = """
    import ast, asyncio, json, sys, threading, zmq
    with open(sys.argv[1]) as file:
        _cells = json.load(file)["cells"]
    _context = zmq.Context()
    _socket = _context.socket(zmq.ROUTER)
    _socket.bind("tcp://127.0.0.1:*")

    def _run(number, source):
        *body, last = ast.parse(source).body
        shown = ast.Interactive([last])
        exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), globals())
        exec(compile(shown, f"<cell {number}>", "single"), globals())

    def _show(value):
        if value is not None:
            print("OUT", repr(value))

    sys.displayhook = _show

    async def _main():
        for number, cell in enumerate(_cells):
            if cell["cell_type"] == "code":
                _run(number, "".join(cell["source"]))

    asyncio.run(_main())
    _socket.close()
    _context.term()
"""


def test_every_cell_runs_and_shows_what_it_should() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KERNEL), "examples/notebook.ipynb"], cwd=ROOT, env=environment(),
        capture_output=True, text=True, timeout=100, check=False,
    )
    assert done.returncode == 0, done.stderr
    report, job, last = [line.removeprefix("OUT ") for line in done.stdout.splitlines() if line.startswith("OUT ")]
    assert report == "(100, 100, 0)"
    assert "'FINISHED'" in job
    assert "killed by SIGKILL" in job
    assert last == "(100, 1)"
