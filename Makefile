# Every target does all the set-up that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup run test lint bench clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[plot,dev]"
	touch $(READY)

run: setup
	$(BIN)/python examples/main_job.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -m "not slow"

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@for script in ingest store components pagerank sssp supersteps cold_start; do \
		echo; echo "## $$script"; echo; $(BIN)/python benchmarks/$$script.py || exit 1; \
	done

clean:
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
