#!/usr/bin/env bash
# Makes .venv-flink, an environment that holds PyFlink alone: it pins an older cloudpickle, numpy and Arrow than Squall
# takes. Guarantees: doing it again costs nothing; half an installation is made anew; the last line says what failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FLINK=.venv-flink
readonly DONE=$FLINK/.has-pyflink

[ ! -e "$DONE" ] || exit 0
rm -rf "$FLINK"
printf '==> installing PyFlink (800 MB) in %s\n' "$FLINK"
"${VENV:-.venv}/bin/python" -m venv "$FLINK"
"$FLINK/bin/python" -m pip install --disable-pip-version-check --no-input --quiet "apache-flink>=2,<3" || {
    echo "PyFlink could not be installed; pip says why above. The benchmark runs without that yardstick." >&2
    exit 1
}
touch "$DONE"
