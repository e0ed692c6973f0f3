# Every target does all the set-up that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# Modules are compiled when they are first imported, and kept: pip would compile thousands that are never used.
unexport PYTHONDONTWRITEBYTECODE

# One worker more than there are cores, as some tests wait for processes and servers.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))

# In the order of their names: the files that come last are short, and no worker waits long for another one's.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

# uv takes half the time; pip where it does not reach the packages, as behind an index that only pip knows.
install = $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) $(1)

.PHONY: setup run test short-tests test-all test-experiments lint docs bench dist compiled-wheel clean

setup: $(VENV)/.spark

# What a user needs; what a developer needs.
EXTRAS_user := plot
EXTRAS_dev := plot,dev
SPARK := "graphframes-py>=0.12,<0.13" "pyspark>=4.1,<4.2"

$(VENV)/.user $(VENV)/.dev: $(VENV)/.%: pyproject.toml hatch_build.py goffish/client/async_calls.py $(wildcard proto/goffish/v1/*.proto)
	$(PYTHON) -m venv $(VENV)
	$(call install,-e ".[$(EXTRAS_$*)]")
	touch $@

# Half a minute on one core, since there is no wheel of it.
$(VENV)/.spark: $(VENV)/.dev
	$(call install,$(SPARK))
	touch $@

run: $(VENV)/.user
	$(BIN)/python examples/main_job.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Three things that take about a minute of one core each go side by side: type checks, which the tests do not wait for,
# PySpark, and the first collection.
test:
	$(MAKE) --jobs 3 lint short-tests

# Compiles thousands of modules once, and not in every test process. The tests collect again, and report what fails.
$(VENV)/.collected: $(VENV)/.dev
	-$(BIN)/python -m pytest -m "not slow" --collect-only -qqq > $@ 2>&1

short-tests: $(VENV)/.spark $(VENV)/.collected
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

# Reproductions of the papers' evaluations.
test-experiments: setup
	$(BIN)/python -m pytest experiments $(PARALLEL)

# Every test, also those that take minutes, with 200 generated examples in place of 12.
test-all: setup lint
	$(BIN)/python -m pytest tests experiments --timeout 1200 --hypothesis-profile thorough $(PARALLEL)

# The documentation site, into out/site; warnings are errors.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: setup
	$(call install,-e ".[bench]")
	@for script in ingest store components pagerank sssp louvain infomap betweenness betweenness_sampled closeness paths centrality similarity walks structure flows bipartite supersteps engines timeseries temporal_peers cold_start stream_peers nexmark stream_recovery; do \
		echo; echo "## $$script"; echo; $(BIN)/python benchmarks/$$script.py || exit 1; \
	done

# What a package index gets; the same commit gives the same bytes.
dist: $(VENV)/.dev
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --installer uv -o dist .
	$(BIN)/python -m twine check --strict dist/*

# A wheel with compiled kernels, for this version of Python.
compiled-wheel: $(VENV)/.dev
	GOFFISH_COMPILED_KERNELS=all $(BIN)/python -m build --installer uv --wheel -o dist .

clean:
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
