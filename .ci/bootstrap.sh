#!/usr/bin/env bash
# Makes and repairs the virtual environment that every make target works in, and checks what pip cannot install.
#
#   .ci/bootstrap.sh install EXTRAS    Squall, editable, with EXTRAS (comma-separated, may be empty) in $VENV (.venv)
#   .ci/bootstrap.sh compile           byte code of our files, where it is missing or old
#   .ci/bootstrap.sh java              is there a Java that Spark can use?
#   .ci/bootstrap.sh spark             the classes that Spark loads, in build/spark: the tests' JVMs start from them in half the time
#   .ci/bootstrap.sh streamparse       streamparse, in build/streamparse: tests read the REST API with it, and run its projects
#   .ci/bootstrap.sh kafka             a Kafka broker, in build/kafka, that tests and benchmarks start
#   .ci/bootstrap.sh zookeeper         a ZooKeeper server, in build/zookeeper, that tests start
#
# PYTHON names the interpreter; unset, the first fit one of python3, python3.13, python3.12 and python3.11 is taken.
# Guarantees: doing it again costs nothing until pyproject.toml changes; an installation that was interrupted is
# started afresh; whatever is missing ends it with one line that says what to install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-.venv}
readonly VENV OLDEST_PYTHON_MINOR=11 OLDEST_JAVA=17
readonly BUSY="$VENV/.squall-installing"

die() { printf '%s\n' "$1" >&2; exit 1; }
say() { printf '==> %s\n' "$1"; }

version_of() { # INTERPRETER -> "3.11.7", or nothing if it does not run (a pyenv shim, a dangling link)
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

new_enough() { # "3.11.7"
    local major minor rest
    IFS=. read -r major minor rest <<<"$1"
    [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge "$OLDEST_PYTHON_MINOR" ]; }
}

find_python() { # sets python and python_version, or ends with what to install
    local candidates=(python3 python3.13 python3.12 python3.11) too_old="" no_venv="" version
    local install="Install python3.11 and python3.11-venv (Debian/Ubuntu) or set PYTHON=/path/to/python."
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for python in "${candidates[@]}"; do
        version=$(version_of "$python")
        [ -n "$version" ] || continue
        if ! new_enough "$version"; then
            too_old=${too_old:-$version}
        elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            no_venv=${no_venv:-$version}
        else
            python_version=$version
            return
        fi
    done
    [ -z "$no_venv" ] || die "Python $no_venv cannot make virtual environments (its venv module is missing). Install\
 python${no_venv%.*}-venv (Debian/Ubuntu) or set PYTHON=/path/to/python."
    [ -z "$too_old" ] || die "Squall needs Python 3.$OLDEST_PYTHON_MINOR or newer; found $too_old. $install"
    die "Squall needs Python 3.$OLDEST_PYTHON_MINOR or newer; ${PYTHON:-python3} is not on PATH or does not run. $install"
}

check_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java output version major
    local install="Install openjdk-17-jre-headless (Debian/Ubuntu) or set JAVA_HOME."
    command -v "$java" >/dev/null \
        || die "Squall's Spark steps need Java $OLDEST_JAVA or newer; found no ${JAVA_HOME:+$JAVA_HOME/bin/}java. $install"
    output=$("$java" -version 2>&1) || die "Squall's Spark steps need Java; $java does not run: ${output%%$'\n'*}. $install"
    [[ $output =~ version\ \"([0-9._]+) ]] || die "Squall's Spark steps need Java; $java names no version. $install"
    version=${BASH_REMATCH[1]}
    major=${version#1.} # Java 8 calls itself 1.8
    major=${major%%.*}
    [ "$major" -ge "$OLDEST_JAVA" ] \
        || die "Squall's Spark steps need Java $OLDEST_JAVA or newer; $java is $version. $install"
}

archive_classes() { # a JVM that finds other jars or is of another Java does without
    check_java
    local wanted row=build/spark/row.csv
    wanted=$(${JAVA_HOME:+$JAVA_HOME/bin/}java -version 2>&1; ls "$VENV"/lib/python*/site-packages/pyspark/jars | sha256sum; pwd -P)
    [ "$(cat build/spark/of 2>/dev/null)" != "$wanted" ] || return 0
    say "archiving the classes that Spark loads in build/spark"
    rm -rf build/spark
    mkdir -p build/spark
    printf 'key,value\n1,2\n' >"$row"
    SPARK_SUBMIT_OPTS="\"-XX:ArchiveClassesAtExit=$PWD/build/spark/classes.jsa\"" \
        "$VENV/bin/squall" verify "$row" "$row" --by key >build/spark/log 2>&1 || die "Spark could not be started: $(cat build/spark/log)"
    printf '%s\n' "$wanted" >build/spark/of
}

install_streamparse() { # with its old friends, so not in the environment of everything else
    local python python_version
    ! build/streamparse/bin/python -c 'import pkg_resources, streamparse' 2>/dev/null || return 0
    find_python
    say "installing streamparse in build/streamparse"
    rm -rf build/streamparse
    mkdir -p build
    "$python" -m venv build/streamparse
    build/streamparse/bin/python -m pip install --quiet --disable-pip-version-check --no-input streamparse 'setuptools<81'
}

install_jars() { # NAME of a server and of its pom; another version there is installed anew
    local name=$1 wanted
    wanted=$(sha256sum <".ci/$name.xml")
    [ "$(cat "build/$name/of" 2>/dev/null)" != "$wanted" ] || return 0
    command -v mvn >/dev/null || die "Squall's tests need $name, which Maven fetches; found no mvn. Install maven (Debian/Ubuntu)."
    say "installing $name in build/$name"
    rm -rf "build/$name"
    mkdir -p "build/$name"
    mvn -q -B -f ".ci/$name.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/build/$name" \
        || die "Maven could not fetch $name; it says why above."
    printf '%s\n' "$wanted" >"build/$name/of"
}

stamp_of() { printf '%s/.squall-has-%s' "$VENV" "${1:-nothing-more}"; }

wanted_stamp() { # scripts in the environment carry this directory's path: a moved or copied tree needs its own
    printf '%s %s\n' "$(sha256sum <pyproject.toml | cut -c1-64)" "$(pwd -P)"
}

usable() { # an environment that runs, was not left half made, and is of the interpreter asked for
    [ ! -e "$BUSY" ] || return 1
    local version stamp
    version=$(version_of "$VENV/bin/python")
    [ -n "$version" ] && new_enough "$version" || return 1
    [ -z "${PYTHON:-}" ] || [ "$version" = "$(version_of "$PYTHON")" ] || return 1
    for stamp in "$VENV"/.squall-has-*; do
        [ -e "$stamp" ] && [ "$(cut -d' ' -f2- "$stamp")" = "$(pwd -P)" ] || return 1
    done
}

contents() { ls -a "$VENV"/lib/python*/site-packages 2>/dev/null | cksum; }

make_venv() {
    local python python_version
    find_python
    if [ -e "$VENV" ]; then
        # Never remove a directory that only happens to have this name.
        [ -e "$VENV/pyvenv.cfg" ] || [ -e "$BUSY" ] || [ -z "$(ls -A "$VENV")" ] \
            || die "$VENV exists and is not a virtual environment: move it away or set VENV."
        say "$VENV is unfinished, or of another interpreter or directory: making it again"
        rm -rf "$VENV"
    fi
    say "making $VENV with Python $python_version"
    mkdir -p "$VENV"
    touch "$BUSY"
    "$python" -m venv "$VENV"
}

install() { # EXTRAS
    local extras=$1 wanted stamp before extra
    wanted=$(wanted_stamp)
    stamp=$(stamp_of "$extras")
    # One at a time: two make runs side by side would write over each other.
    exec 9<pyproject.toml
    ! command -v flock >/dev/null || flock 9
    usable || make_venv
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0

    say "installing squall${extras:+[$extras]} in $VENV"
    if [[ ,$extras, =~ ,(all|spark), ]] && ! compgen -G "$VENV/lib/python*/site-packages/pyspark" >/dev/null; then
        say "PySpark is a source package of 456 MB: getting it and building its wheel takes minutes the first time; pip keeps the wheel"
    fi
    if [[ ,$extras, == *,bench,* ]] && [[ "$(version_of "$VENV/bin/python")" != 3.1[12].* ]]; then
        say "bytewax has no wheels for Python $(version_of "$VENV/bin/python"): the benchmark runs without that yardstick"
    fi
    before=$(contents)
    touch "$BUSY"
    if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --editable ".${extras:+[$extras]}"; then
        # pip does not undo what it had unpacked: the environment is kept only if nothing changed in it.
        [ "$before" != "$(contents)" ] || rm -f "$BUSY"
        die "Squall could not be installed; pip says why above."
    fi
    for extra in "$extras" ${extras//,/ }; do
        printf '%s\n' "$wanted" >"$(stamp_of "$extra")"
        [ "$extra" != all ] || printf '%s\n' "$wanted" >"$(stamp_of spark)"
    done
    rm -f "$BUSY"
    compile
}

compile() {
    # As pip does for packages: with PYTHONDONTWRITEBYTECODE, as in many containers, each process would compile all of
    # Squall that it imports, which takes longer than the rest of its start.
    "$VENV/bin/python" -m compileall -q engine ipc scheduler pipeline connect ui squall examples benchmarks tests
}

case "${1:-}" in
    install) install "${2:-}" ;;
    compile) compile ;;
    java) check_java ;;
    spark) archive_classes ;;
    streamparse) install_streamparse ;;
    kafka | zookeeper) install_jars "$1" ;;
    *) die "usage: .ci/bootstrap.sh install EXTRAS | compile | java | spark | streamparse | kafka | zookeeper" ;;
esac
