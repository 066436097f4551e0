# What the README's commands call. `make setup` needs Python 3.11 or newer and pip, nothing else.
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint unlock

# The stamp makes a second call cheap, and a changed lock file install again.
setup: $(VENV)/installed
$(VENV)/installed: envs/requirements.lock
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement envs/requirements.lock
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --lint

test: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest
