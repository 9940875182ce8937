"""Prints the streamparse topology of a file as JSON. Run as a file itself, by the interpreter of the project.

Relies on: `Topology.specs` of streamparse 3 to 5. Knows nothing of Squall, which that interpreter need not have.
"""

import importlib
import json
import os
import sys
from typing import Any


def found(file: str) -> Any:
    """Return the topology class of a file, as `sparse` does: the first one in it."""
    folder, name = os.path.split(os.path.abspath(file))
    # In place of this file's folder, where a module may have any name.
    sys.path[:1] = [os.path.join(os.path.dirname(folder), "src"), folder]
    from streamparse import Topology  # type: ignore[import-not-found]

    for value in list(vars(importlib.import_module(name[: -len(".py")])).values()):
        if isinstance(value, type) and issubclass(value, Topology) and value is not Topology:
            return value
    sys.exit(f"{file} has no subclass of streamparse.Topology")


def described(spec: Any) -> "dict[str, Any]":
    """Describe a component. Its command is None if it is written in Java."""
    shell = getattr(spec.component_object, "shell", None)
    inputs = []
    for stream, grouping in spec.inputs.items():
        kind, fields = next((name, value) for name, value in vars(grouping).items() if value is not None)
        fields = fields if kind == "fields" else []
        inputs.append([stream.componentId, stream.streamId, kind, fields])
    return {
        "name": spec.name,
        "command": shell and [shell.execution_command, *shell.script.split()],
        "outputs": {name: [stream.output_fields, stream.direct] for name, stream in spec.outputs.items()},
        "tasks": max(spec.par.values()) if isinstance(spec.par, dict) else spec.par,
        "config": json.loads(spec.config) if isinstance(spec.config, str) else spec.config or {},
        "inputs": inputs,
    }


if __name__ == "__main__":
    # What the project prints while it is imported must not be taken for the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    topology = found(sys.argv[1])
    json.dump({"config": topology.config, "components": [described(spec) for spec in topology.specs]}, answer)
    answer.close()
