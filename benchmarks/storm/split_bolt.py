"""Storm's multilang bolt that splits lines into words. Runs in a process that Storm starts, beside Storm's `storm.py`.

It sends the words of a line in one write, and does not ask for the numbers of the tasks they went to: Storm's own
`emit` does both for each word, and waits for the answer.
"""

from __future__ import annotations

import json
import sys

import storm


class Split(storm.Bolt):
    def process(self, tup: storm.Tuple) -> None:
        messages = [
            json.dumps({"command": "emit", "anchors": [tup.id], "need_task_ids": False, "tuple": [word]})
            for word in tup.values[0].split()
        ]
        messages.append(json.dumps({"command": "ack", "id": tup.id}))
        sys.stdout.write("".join(f"{message}\nend\n" for message in messages))
        sys.stdout.flush()


Split().run()
