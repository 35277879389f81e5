# Two commands do everything on a machine with Python 3.11 or newer and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := $(shell grep ^torch== constraints.txt)
TOOLS := hypothesis pytest pytest-timeout pytest-xdist pyyaml triton
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes; each would compile the sources again

.PHONY: demo test test-all test-lowest test-newest lint types layers unit docs papers campaign campaign-full measure-house format clean

demo: $(READY)  ## train a small network and show what each scheme does to its gradient
	$(BIN)/laconic demo

test: lint  ## everything CI checks; types and layers are checked beside the tests
	$(MAKE) --no-print-directory --jobs 2 unit types layers TESTS='$(TESTS)'

test-all: TESTS := -m ""
test-all: test  ## the same with the exhaustive sweeps; before a release

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

unit: $(READY)  ## a worker a core, of one thread; laws about threads set their own number
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(TESTS)

BOUNDS := tests/package tests/codec tests/data tests/planner tests/report tests/laws/test_golden_bytes.py \
	tests/glm/test_estimators.py tests/glm/test_model.py tests/cli/test_command.py tests/cli/test_main.py

test-lowest:  ## what touches each dependency, with the lowest version of each that we claim
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e ".[all]" $(TORCH) $(TOOLS)
	OMP_NUM_THREADS=1 .venv-lowest/bin/pytest -n auto --maxprocesses 4 --dist loadfile $(BOUNDS)

test-newest:  ## the same, with the newest there is; torch as pinned, or gigabytes for GPUs would come along
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade -e ".[all]" $(TORCH) $(TOOLS)
	OMP_NUM_THREADS=1 .venv-newest/bin/pytest -n auto --maxprocesses 4 --dist loadfile $(BOUNDS)

docs: $(READY)  ## the documentation as a site, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

papers: $(READY)  ## run the papers' experiments again: make papers ARGS="--suite ca-sgd"
	$(BIN)/python -m benchmarks papers $(ARGS)

campaign: $(READY)  ## hostile bytes, killed ranks, bad surroundings, long runs: minutes; its counts go to runs/campaign.json
	$(BIN)/python -m campaign $(ARGS)

campaign-full: $(READY)  ## the same for hours; begins where runs/campaign.json ends
	$(BIN)/python -m campaign --full $(ARGS)

measure-house: $(READY)  ## the size of the source, and how far a change or a row travels through it
	$(BIN)/python benchmarks/house.py

format: $(READY)  ## put the code into the house's shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
