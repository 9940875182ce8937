"""What Storm needs on this machine: its jars, which Maven fetches once, and the topology's jar, which is compiled here.

Relies on: `mvn`, `javac` and `java` on the path.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

from benchmarks.measured import Unavailable

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "storm"


def storm_version() -> str:
    found = ElementTree.parse(HERE / "pom.xml").findtext(".//{*}storm.version")
    return found or "of unknown version"


def fetch_jars(directory: Path = BUILD) -> Path:
    """The folder of Storm's and ZooKeeper's jars. Fetches them if the pom has changed; Unavailable if it cannot."""
    for tool, package in (("mvn", "maven"), ("javac", "openjdk-17-jdk-headless"), ("java", "openjdk-17-jdk-headless")):
        if shutil.which(tool) is None:
            raise Unavailable(f"needs {tool}: install {package} (Debian/Ubuntu)")
    jars, stamp = directory / "lib", directory / "fetched"
    wanted = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(jars, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        done = subprocess.run([*command, f"-DoutputDirectory={jars}"], capture_output=True, text=True, check=False)
        if done.returncode:
            said = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it said nothing")
            raise Unavailable(f"Maven could not fetch Storm {storm_version()}: {said[:300]}")
        stamp.write_text(wanted)
    return jars


def build_topology(jars: Path, directory: Path = BUILD) -> Path:
    """The topology's jar, with its multilang bolt and Storm's `storm.py` among the resources."""
    classes, jar = directory / "classes", directory / "word-count.jar"
    shutil.rmtree(classes, ignore_errors=True)
    subprocess.run(
        ["javac", "-d", str(classes), "-cp", f"{jars}/*", str(HERE / "WordCount.java")], check=True, capture_output=True
    )
    [multilang] = jars.glob("multilang-python-*.jar")
    with zipfile.ZipFile(jar, "w") as packed:
        for path in classes.rglob("*.class"):
            packed.write(path, path.relative_to(classes).as_posix())
        packed.write(HERE / "split_bolt.py", "resources/split_bolt.py")
        with zipfile.ZipFile(multilang) as storm:
            packed.writestr("resources/storm.py", storm.read("resources/storm.py"))
    return jar
