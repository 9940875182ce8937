"""A multilang program of the tests: `python shell_program.py DIRECTORY ROLE [NUMBER]`. It knows nothing of Squall.

It notes its pid in DIRECTORY/pids. Bolts get numbers; NUMBER is the one on which a role does what it is for, once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(sys.argv[1])
VICTIM = int(sys.argv[3]) if len(sys.argv) > 3 else -1
Message = dict[str, Any]
commands: deque[Message] = deque()


def note(name: str, record: Any) -> None:
    with (HERE / name).open("a") as file:
        file.write(json.dumps(record) + "\n")


def first_time(name: str) -> bool:
    there = (HERE / name).exists()
    (HERE / name).touch()
    return not there


def read() -> Any:
    lines = []
    while (line := sys.stdin.readline()) != "end\n":
        if not line:
            sys.exit(0)
        lines.append(line)
    return json.loads("".join(lines))


def send(**message: Any) -> None:
    print(json.dumps(message), "end", sep="\n", flush=True)


def emit(values: list[Any] | None, **more: Any) -> list[int]:
    """Emit, and wait for the ids of the tasks, as Storm's own clients do."""
    send(command="emit", tuple=values, **more)
    while isinstance(answer := read(), dict):
        commands.append(answer)
    return list(answer)


def command() -> Message:
    while True:
        found = commands.popleft() if commands else read()
        if found.get("stream") != "__heartbeat":
            return found
        send(command="sync")


def greet() -> Message:
    greeting: Message = read()
    note("pids", os.getpid())
    send(pid=os.getpid())
    # After the pid, as storm.py does.
    (Path(greeting["pidDir"]) / str(os.getpid())).touch()
    return greeting


# ---- bolts ----


def passes(tup: Message) -> None:
    tasks = emit(tup["tuple"], anchors=[tup["id"]])
    assert len(tasks) == 1, tasks
    send(command="ack", id=tup["id"])


def killed(tup: Message) -> None:
    if tup["tuple"] == [VICTIM] and first_time("met"):
        sys.stderr.write("these are\nmy last words\n")
        os.kill(os.getpid(), signal.SIGKILL)
    passes(tup)


def hangs(tup: Message) -> None:
    if tup["tuple"] == [VICTIM] and first_time("met"):
        time.sleep(3600)
    passes(tup)


def noisy(tup: Message) -> None:
    print("a word", tup)
    print({"command": "ack", "id": "of a print"})
    passes(tup)
    print("without an end of line", end="")
    print("end\nend")


def fails(tup: Message) -> None:
    if tup["tuple"] == [VICTIM] and first_time("met"):
        send(command="fail", id=tup["id"])
    else:
        passes(tup)


def twice(tup: Message) -> None:
    passes(tup)
    if tup["tuple"] == [VICTIM] and first_time("met"):
        send(command="ack", id=tup["id"])


def floods(tup: Message) -> None:
    """Reads none of the ids of tasks before its last emit: they are more than a pipe holds."""
    for n in range(20_000):
        send(command="emit", tuple=[n], anchors=[tup["id"]])
    answers = [read() for _ in range(20_000)]
    assert all(isinstance(answer, list) or answer["stream"] == "__heartbeat" for answer in answers)
    send(command="no command")
    send(command="ack", id=tup["id"])


kept: list[Message] = []


def keeps(tup: Message) -> None:
    """Acks what it has, last first, at a tick."""
    if tup["stream"] == "__tick":
        assert (tup["comp"], tup["task"]) == ("__system", -1)
        send(command="ack", id=tup["id"])
        while kept:
            send(command="ack", id=kept.pop()["id"])
    else:
        kept.append(tup)


def talks(tup: Message) -> None:
    send(command="log", msg="a line of its log", level=3)
    send(command="error", msg="an error of its own")
    send(command="metrics", name="size", params=2.5)
    send(command="metrics", name="wrong", params="many")
    emit([tup["tuple"][0], tup["fields"]], stream="named", anchors=tup["id"])
    send(command="emit", tuple=["direct"], stream="direct", task=int(sys.argv[3]), anchors=[tup["id"]])
    send(command="emit", tuple=["quiet", []], stream="named", anchors=[], need_task_ids=False)
    send(command="ack", id=tup["id"])


# ---- spouts ----


def spout() -> NoReturn:
    """Emits 0, 1, 2 ... up to NUMBER but what was acked in an earlier life; each second id is a text."""
    (HERE / "acked").touch()
    acked = {int(json.loads(line)) for line in (HERE / "acked").read_text().splitlines()}
    numbers = iter(n for n in range(VICTIM) if n not in acked)
    while True:
        asked = read()
        note("asked", asked["command"])
        if asked["command"] == "ack":
            note("acked", asked["id"])
        elif asked["command"] == "fail":
            note("failed", asked["id"])
            emit([int(asked["id"])], id=asked["id"])
        elif asked["command"] == "deactivate":
            assert emit(None, id=7) == []
        elif asked["command"] == "next" and (n := next(numbers, None)) is not None:
            emit([n], id=str(n) if n % 2 else n)
        send(command="sync")


if __name__ == "__main__":
    role = sys.argv[2]
    if role == "exits":
        sys.exit("no database")
    told = greet()
    if role == "spout":
        spout()
    if role == "mute":
        time.sleep(3600)
    if role == "early":
        emit([-1])
        role = "passes"
    while True:
        tup = command()
        if role == "talks":
            tup["fields"] = told["context"]["source->stream->fields"][tup["comp"]][tup["stream"]]
        globals()[role](tup)
