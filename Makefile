# What the README's commands call. `make setup` needs Python 3.11 and pip, nothing else.
VENV := .venv
BIN := $(VENV)/bin
# Jobs call `python` and `snakemake` by name: the environment's come first.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: setup demo report test lint storm slurm-test bench unlock

# The stamp makes a second call cheap; a changed lock file installs again.
setup: $(VENV)/installed
$(VENV)/installed: envs/requirements.lock
	@echo "setup: $$(grep -c == $<) packages of $< go into $(VENV); downloads some GB, takes minutes"
	@python3 -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@
	@echo "setup: done; other make targets use $(VENV) by themselves"

demo: setup
	snakemake --profile profiles/local
	python scripts/show_runs.py results/demo/evaluation/*.json

report: setup
	snakemake --profile profiles/local --report report.zip

lint: setup
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow
	mypy
	mypy --strict --follow-imports=silent scripts/meshstage/workflow.py
	snakemake --lint

# A file's tests stay in one process, whose fixtures they share; each process imports much.
test: setup
	pytest --numprocesses logical --maxprocesses 4 --dist loadfile

storm: setup
	python tests/benchmarks/kill_storm.py

slurm-test: setup
	tests/slurm/run

bench: setup
	python tests/benchmarks/run_all.py

unlock: setup
	snakemake --unlock
