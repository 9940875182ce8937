#!/usr/bin/env bash
# Builds sdist and wheel from a zip, where the links in squall/ are lost, and uses the wheel as its users do: in an empty
# environment of each interpreter that is there, beside a package of the package index that is called like one of our
# folders, in a directory whose files are called like our modules and the standard library's.
#
# Needs $VENV with the extra `dev`. Everything it makes lies in build/package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=${VENV:-.venv} WORK=$PWD/build/package
readonly NEIGHBOUR=scheduler # on the package index; nothing to do with us

die() { printf 'package: %s\n' "$1" >&2; exit 1; }

crowd() { # DIRECTORY: a topology, and files that nobody but it must execute
    mkdir -p "$1"
    cp examples/names.py "$1"
    local name
    for name in engine ipc scheduler pipeline ui queue sqlite3; do
        printf 'raise SystemExit("executed %s.py of the current directory")\n' "$name" >"$1/$name.py"
    done
}

interpreter() { # "3.12" -> one that runs and can make environments, on PATH or among those that pyenv keeps; or nothing
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
}

check() { # "3.12" INTERPRETER
    local version=$1 place="$WORK/$1" log
    log="$place/log"
    mkdir -p "$place"
    "$2" -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet --disable-pip-version-check --no-input "$wheel" "$NEIGHBOUR" >"$log" 2>&1 \
        || { cat "$log" >&2; die "the wheel cannot be installed with Python $version"; }
    "$place/venv/bin/pip" check >"$log" 2>&1 || { cat "$log" >&2; die "pip check fails with Python $version"; }
    crowd "$place/crowd"
    (cd "$place/crowd" && "$place/venv/bin/squall" run names.py --workers 2) >"$log" 2>&1 \
        || { cat "$log" >&2; die "names.py does not run with Python $version"; }
    (cd / && "$place/venv/bin/python" -c "import scheduler; scheduler.Scheduler") \
        || die "$NEIGHBOUR is broken beside us with Python $version"
    printf 'package: works with Python %s\n' "$version"
}

rm -rf "$WORK"
mkdir -p "$WORK"
changed=$(git stash create)
git archive --format=zip --output "$WORK/squall.zip" "${changed:-HEAD}"
"$VENV/bin/python" -m zipfile --extract "$WORK/squall.zip" "$WORK/source" # no unzip: it would make the links again
"$VENV/bin/python" -m build --outdir "$WORK/dist" "$WORK/source" >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; die "it cannot be built"; }
wheel=$(echo "$WORK"/dist/*.whl)
tops=$("$VENV/bin/python" -m zipfile --list "$wheel" | awk 'NR > 1 { split($1, part, "/"); print part[1] }' | sort -u | tr '\n' ' ')
[[ $tops == "squall squall-"*".dist-info " ]] || die "the wheel installs $tops; squall alone is allowed"
checked=0
for version in 3.11 3.12 3.13; do
    python=$(interpreter "$version")
    [ -z "$python" ] || { check "$version" "$python"; checked=$((checked + 1)); }
done
[ "$checked" -gt 0 ] || die "no interpreter from 3.11 to 3.13 can make an environment"
rm -rf "$WORK"
