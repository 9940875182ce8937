#!/usr/bin/env bash
# Makes build/types: links to the packages' folders, laid out as they are installed, for mypy, which reads sources and
# knows nothing of the mapping in pyproject.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TREE=build/types/squall
mkdir -p "$TREE"
find "$TREE" -maxdepth 1 -type l -delete
for entry in squall/* engine ipc pipeline scheduler; do
    [ "${entry##*/}" = __pycache__ ] || ln -s "../../../$entry" "$TREE/${entry##*/}"
done
