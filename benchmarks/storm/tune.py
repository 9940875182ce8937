"""`python -m benchmarks.storm.tune TEXT KEY=VALUE,KEY=VALUE...`: words/s of Storm at each of several settings."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.storm.artefacts import build_topology, fetch_jars
from benchmarks.storm.cluster import Cluster
from benchmarks.storm.word_count import PYTHON, Running, Setting

_WARM_UP_SECS, _SECS = 15.0, 6.0


def setting_of(text: str) -> Setting:
    """`workers=2,counts=2`, or with `python` the bolt that splits in Python."""
    values: dict[str, object] = {"name": text}
    for part in text.split(","):
        key, _, value = part.partition("=")
        values |= {"split": PYTHON} if key == "python" else {key: value if key == "heap" else int(value)}
    return Setting(**values)  # type: ignore[arg-type]


def main() -> None:
    corpus = Corpus.read(Path(sys.argv[1]))
    jars = fetch_jars()
    jar = build_topology(jars)
    with tempfile.TemporaryDirectory(prefix="squall-storm-") as name, Cluster(jars, Path(name)) as cluster:
        for text in sys.argv[2:]:
            with Running(cluster, jar, corpus, setting_of(text)) as running:
                time.sleep(_WARM_UP_SECS)
                found = [running.measure(_SECS / 2)[0].words_per_sec / 1e6 for _ in range(2)]
                print(f"{text}: {found[0]:.2f}, {found[1]:.2f} M words/s", flush=True)


if __name__ == "__main__":
    main()
