#!/usr/bin/env bash
# Runs the tests ROUNDS times, every second time beside four busy processes, to find tests that are right only on an idle
# or on a fast machine: `make again ROUNDS=10`.
#
# Guarantees: every round is run, also after one that failed; the last lines name each failure and its round; the exit code
# is 1 if there was any. Arguments are handed to pytest.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=${VENV:-.venv} ROUNDS=${ROUNDS:-10} LOG=build/again
busy=()
stop_load() { [ "${#busy[@]}" = 0 ] || kill "${busy[@]}" 2>/dev/null; busy=(); }
trap stop_load EXIT

mkdir -p "$LOG"
rm -f "$LOG"/round-*
failed=0
for ((round = 1; round <= ROUNDS; round++)); do
    if ((round % 2 == 0)); then
        for _ in 1 2 3 4; do
            (while :; do :; done) &
            busy+=($!)
        done
    fi
    at=$(mktemp -d /tmp/u.XXX)
    TMPDIR=/tmp "$VENV/bin/pytest" -n "${TESTS_AT_ONCE:-3}" --dist loadgroup --basetemp="$at" -q -m "not nightly" "$@" >"$LOG/round-$round" 2>&1 || failed=1
    rm -rf "$at"
    printf 'round %d, %d busy beside it: %s\n' "$round" "${#busy[@]}" "$(tail -n 1 "$LOG/round-$round")"
    stop_load
done
grep -H "^FAILED\|^ERROR" "$LOG"/round-* | sort -t: -k3
exit "$failed"
