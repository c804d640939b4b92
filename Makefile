# Everything here sets up what it needs: a bare clone with Python 3.11+ and make is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TIMES ?= 10
JOBS ?= 3

.PHONY: front demo test chromium test-browser test-all test-peers faults bench bench-gpu peers studies docs package lint clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing vitreous and its tools into $(VENV) (PyTorch is large: a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(READY)

demo: $(READY)  ## the bundled models on scenes, through all four lenses, to a report
	$(BIN)/vitreous demo --out vitreous-demo

front:  ## builds the pages of reports and of the explorer into the package (needs Node 20 or newer)
	cd web && npm ci --no-audit --no-fund && npm run check && npm test && npm run build

test: $(READY) chromium  ## what CI runs after lint, test files shared out among JOBS processes of one thread
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

chromium:  ## for the browser tests, installed where that is allowed
	@command -v chromium >/dev/null || test -n "$$CHROMIUM" \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; } \
	|| echo "Chromium is not here and cannot be installed: the browser tests will be skipped"

test-browser: $(READY) chromium  ## the pages in Chromium
	$(BIN)/python -m pytest tests/browser -rs

test-all: $(READY)  ## also the slow tests and those on real data
	$(BIN)/python -m pytest -m "not peers"

faults: $(READY)  ## kills, full disks, cut files, dead workers and a lost object store in every stage, TIMES in a row
	$(BIN)/python benchmarks/faults.py --times $(TIMES) --out benchmarks/results/faults.json

test-peers: $(READY)  ## the same numbers as grad-cam, quantus, captum, overcomplete and SAELens
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,peers]'
	$(BIN)/python -m pytest -m peers

bench: $(READY) peers  ## every kernel and lens against its peers in one run: benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py

bench-gpu: $(READY) peers  ## the same on an accelerator: benchmarks/results/gpu/RESULTS.md
	$(BIN)/python benchmarks/run.py --gpu

peers:
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]' \
	|| echo "not all peers can be installed: the table says which are missing"

studies: $(READY)  ## writes docs/results.md and the papers' pages from studies/results/*.json
	$(BIN)/python studies/results_page.py

docs: $(READY)  ## rewrites the generated tables and builds the site into site/
	$(BIN)/python docs/write_tables.py
	$(BIN)/mkdocs build --strict --quiet

package: $(READY)  ## sdist and wheel into dist/, checked
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) site dist vitreous-demo .pytest_cache .mypy_cache .ruff_cache
