# `make profile`, `make test` and, for what takes long, `make test-long`. Each sets up its own .venv first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROGRAMS := $(VENV)/.programs
# Files go whole to one of so many processes, in the order of tests/conftest.py. More would only contend: most tests
# start processes of their own.
TEST_PROCESSES ?= 2

.PHONY: profile test test-long lint example seeds lock dist check-debian clean

profile: $(READY)
	$(BIN)/kgprof profile linkpred

# mypy and the programs' packages need only .venv: each takes most of a minute on one core.
test: check-debian $(READY)
	$(MAKE) --no-print-directory --output-sync=target -j2 $(PROGRAMS) lint
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# The tests marked long, which `make test` leaves out, one after the other; what they said is kept.
test-long: check-debian $(PROGRAMS)
	set -o pipefail; $(BIN)/python -m pytest -m long --timeout 7200 -rA | tee benchmarks/results/test_long.txt

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): setup.cfg constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# What the programs of tests/programs need. torchvision's wheel is built for CUDA and raises on import beside a CPU
# build of torch; where pykeen, transformers or torchmetrics found it they would raise too. So it lies in a folder that
# only tests/programs looks into.
$(PROGRAMS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,programs]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --upgrade \
	  --target $(VENV)/vision/site-packages torchvision timm pillow
	touch $@

example: $(READY)
	$(BIN)/python -m tests.examples
	$(BIN)/python benchmarks/seeds.py

# The documents' figures, measured on an H200 and held against them: docs/seeds.md. What is kept in benchmarks/results is
# not measured again (on another card, remove it first). A sitting takes about ten minutes; make it again until the last
# line counts nothing as not measured.
RESULTS := benchmarks/results

seeds: $(READY)
	$(BIN)/python benchmarks/seed_numbers.py --device cuda --until-s 200 -o $(RESULTS)/seed_numbers_h200.json
	test -s $(RESULTS)/published_v10_h200.json || $(BIN)/python benchmarks/published_v10.py --device cuda \
	  --mode eager --mode default -o $(RESULTS)/published_v10_h200.json
	$(BIN)/python benchmarks/examples.py --device cuda --until-s 240 -o $(RESULTS)/examples_h200.json
	$(BIN)/python benchmarks/examples.py --device cuda --until-s 60 -o $(RESULTS)/examples_h200.json \
	  --mode max-autotune transformer-block transformer
	$(BIN)/python benchmarks/seeds.py

# After a change of constraints.txt or setup.cfg: hashes of every pin from the package index, and the bill of materials.
lock: $(READY)
	$(BIN)/python -m tests.release.lock
	$(BIN)/python -m tests.release.sbom

# sdist and wheel, built twice: it fails if the two wheels differ in a byte.
dist: $(READY)
	$(BIN)/python -m tests.release.dist dist

# The browser tests need Debian's chromium, the proof oracle needs SWI-Prolog; neither comes from pip.
check-debian:
	@missing=""; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v swipl >/dev/null || missing="$$missing swi-prolog-nox"; \
	command -v g++ >/dev/null || missing="$$missing g++"; \
	if [ -n "$$missing" ]; then \
	  echo "make test needs Debian packages that are not here. Install them with:" >&2; \
	  echo "  apt-get update && apt-get install -y$$missing" >&2; exit 2; \
	fi

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
