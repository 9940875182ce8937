# Everything a developer or CI does, one short command each. Targets install what they need in $(VENV) by themselves.
#
#   PYTHON=python3.12   the interpreter to make $(VENV) with (default: the first of python3, python3.13 ... that fits)
#   VENV=.venv          where to install
#   EXTRAS=             what to install instead of the extras named below

VENV := $(or $(VENV),.venv)
WORKERS ?= 2
TESTS_AT_ONCE ?= 3
ROUNDS ?= 200
SEEDS ?= 10000
JOBS ?= 2
export VENV PYTHON
MAKEFLAGS += --no-print-directory

BOOTSTRAP := @.ci/bootstrap.sh
BIN := $(VENV)/bin
CORE := tests/unit tests/sim tests/process
OTHERS := tests/servers tests/docs tests/spark tests/chaos
# As typed in a shell: any character may be in the name of a folder.
quoted = '$(subst ','\'',$(1))'

# Not in TMPDIR, whose name may be long: the paths of sockets end at 107 bytes. Without plugins that no test uses: with
# them each pytest, of which tests start twenty, takes half a second more. Types are checked beside the tests, which wait
# much.
define tested
$(BIN)/ruff check .
$(BIN)/python .ci/count_tokens.py
mkdir -p build && { $(BIN)/mypy >build/types 2>&1 & types=$$!; } && at=$$(mktemp -d /tmp/u.XXX) \
	&& { TMPDIR=/tmp PYTEST_ADDOPTS="-p no:anyio -p no:schemathesis" $(BIN)/pytest -n $(TESTS_AT_ONCE) --dist loadgroup --basetemp=$$at -m "not nightly" $(1); code=$$?; rm -rf "$$at"; \
	wait $$types || { cat build/types; exit 1; }; exit $$code; }
endef

.DEFAULT_GOAL := help
.PHONY: help install run test test-all servers nightly again count prove sim chaos lint type docs package bench bench-quick bench-storm clean

help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

install: EXTRAS ?= all
install: ## Squall and all its extras in .venv [EXTRAS=spark]
	$(BOOTSTRAP) install $(EXTRAS)

run: EXTRAS ?= spark
run: ## Prepare text with Spark, count its words with Squall, check the counts with Spark [INPUT=DIR] [WORKERS=2]
	$(BOOTSTRAP) java
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/squall prepare $(if $(INPUT),$(call quoted,$(INPUT)) )--out build/feed --overwrite
	$(BIN)/squall run examples/word_count_by_batch.py --workers $(WORKERS) -- --feed build/feed --out build/result
	$(BIN)/python examples/check_word_count.py build/feed build/result

test: EXTRAS ?= all,dev
test: ## Lint, types and the tests that need nothing but Python: in five minutes
	$(BOOTSTRAP) install $(EXTRAS)
	$(BOOTSTRAP) compile
	$(call tested,$(CORE))

test-all: EXTRAS ?= all,dev
test-all: ## The same, and the tests with servers, a browser, Spark and the documentation: in eight (what CI runs)
	$(BOOTSTRAP) install $(EXTRAS)
	$(MAKE) servers
	$(BOOTSTRAP) compile
	$(call tested,$(CORE) $(OTHERS))

servers: EXTRAS ?= all,dev
servers: ## What the tests start that pip does not install: Kafka, ZooKeeper, streamparse, Spark's classes
	$(BOOTSTRAP) install $(EXTRAS)
	-$(BOOTSTRAP) streamparse
	-$(BOOTSTRAP) kafka
	-$(BOOTSTRAP) zookeeper
	-$(BOOTSTRAP) spark

nightly: EXTRAS ?= all,dev
nightly: ## What takes long: random seeds, the search for mutants, kills, the tests over and over [ROUNDS=10]
	$(BOOTSTRAP) install $(EXTRAS)
	$(MAKE) --keep-going prove sim chaos again

again: ROUNDS = 10
again: EXTRAS ?= all,dev
again: ## The tests ROUNDS times, every second time beside four busy processes: is any of them flaky? [ROUNDS=10] [ARGS=tests/unit]
	$(BOOTSTRAP) install $(EXTRAS)
	ROUNDS=$(ROUNDS) .ci/again.sh $(ARGS)

count: EXTRAS ?= dev
count: ## Tokens of code by folder, and whether there are more than there may be
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/python .ci/count_tokens.py

prove: EXTRAS ?= test
prove: ## Model check of the tracking: every schedule of small trees, a million random ones, negative controls [ARGS="--help"]
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/python -m tests.sim $(ARGS)

sim: EXTRAS ?= test
sim: ## Whole clusters in simulated time, from seeds: daemons alone, then with real workers and store [SEEDS=10000]
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/python -m tests.sim.lives --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.sim.lives --joined --seeds $(SEEDS) $(ARGS)

chaos: EXTRAS ?= all,dev
chaos: SEED ?= $(shell od -An -N3 -tu4 /dev/urandom)
chaos: ## Tests marked nightly, then who dies, what happens, on real clusters until a row breaks [ROUNDS=200] [JOBS=2] [SEED=N] [ROW=supervisor, those alone]
	-$(BOOTSTRAP) kafka
	$(BOOTSTRAP) install $(EXTRAS)
	$(if $(ROW),,SQUALL_TEST_SEED=random $(BIN)/pytest -m nightly tests)
	@# One round per seed; 255 tells xargs to begin no other. What a round leaves is kept under build/chaos.
	seed=$$(($(SEED))) && mkdir -p build/chaos && seq $$seed $$((seed + $(ROUNDS) - 1)) | xargs -P $(JOBS) -I{} sh -c \
		'SQUALL_TEST_SEED={} $(BIN)/pytest -x -q --basetemp=build/chaos/{} -k "$$0" tests/chaos/test_who_dies.py && rm -rf build/chaos/{} || exit 255' \
		$(call quoted,$(or $(ROW),dies))

lint: EXTRAS ?= all,dev
lint: ## Style and likely bugs
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/ruff check .

type: EXTRAS ?= all,dev
type: ## Types, strictly
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/mypy

docs: EXTRAS ?= all,dev
docs: ## The API reference, from docstrings, in build/docs
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/python docs/reference.py

package: EXTRAS ?= all,dev
package: ## sdist and wheel, and the wheel used in empty environments of the interpreters that are there
	$(BOOTSTRAP) install $(EXTRAS)
	.ci/check_package.sh

bench: EXTRAS ?= bench
bench: ## Measure Squall beside its yardsticks on this machine, in nine minutes [ARGS="--help"]
	$(BOOTSTRAP) install $(EXTRAS)
	-@.ci/flink.sh
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: EXTRAS ?= bench
bench-quick: ## The same without the slow starters, one short round of each, in one minute [ARGS="--no-write"]
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/python -m benchmarks --quick --no-write $(ARGS)

bench-storm: EXTRAS ?= bench
bench-storm: ## Measure Squall beside Apache Storm, which Maven fetches, in four minutes [ARGS="--help"]
	$(BOOTSTRAP) install $(EXTRAS)
	$(BIN)/python -m benchmarks.storm $(ARGS)

clean: ## Remove what the targets made, except .venv
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse artifacts
	find $(wildcard engine ipc scheduler pipeline ui squall examples benchmarks tests docs) -name __pycache__ -prune -exec rm -rf {} +
