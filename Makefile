# Everything runs from .venv, made once from constraints.txt and kept as long as the two files below do not change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: help demo test test-all lint docs dist bench bench-gpu lock clean
help:
	@echo "make demo      the calculator and one mechanism at work"
	@echo "make test      format, lint, types and the test suite"
	@echo "make test-all  the same with the long statistical checks"
	@echo "make docs      the site, in build/site; fails at broken links"
	@echo "make dist      wheel and sdist, in build/dist, tried without the checkout"
	@echo "make bench     speed, as ratios measured in one run"
	@echo "make bench-gpu a round of ResNet-20 beside a plain step, on whatever device JAX has"
	@echo "make lock      resolve constraints.txt anew"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Sordino needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,deploy]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/sordino demo

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

test-all: lint
	$(BIN)/pytest -n 2 --dist loadgroup

docs: $(DOCS_STAMP)
	$(BIN)/python -m tools.commands
	$(BIN)/python -m tools.site

dist: $(STAMP)
	$(BIN)/python -m tools.dist

bench: $(STAMP)
	$(BIN)/python -m bench
	$(BIN)/sordino bench --keep results/bench

bench-gpu: $(STAMP)
	$(BIN)/python -m bench.gpu

lock:
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev,deploy,docs]'
	.lock/bin/python -m pip freeze --exclude sordino > constraints.txt
	rm -rf .lock build

clean:
	rm -rf $(VENV) .lock build .mypy_cache .ruff_cache .pytest_cache
