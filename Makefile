# The commands of a checkout. The first one makes .venv; later ones install again only after a dependency changed.
VENV   := .venv
BIN    := $(VENV)/bin
PINS   := .ci/constraints.txt
# The first of these that is at least 3.11; `make PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test lint format

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: $(VENV)/.run ## train a model: make train ARGS="arch=... trainer.max_steps=100"
	$(BIN)/python -m recipes.train $(ARGS)

test: lint ## lint, then run the tests: make test ARGS="-k mask"
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: $(VENV)/.dev ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(VENV)/.dev ## format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pins matter most for torch: another version may bring gigabytes of CUDA libraries along.
$(VENV)/.run: EXTRAS :=
$(VENV)/.dev: EXTRAS := [dev]
$(VENV)/.run $(VENV)/.dev: pyproject.toml $(PINS)
	@test -n "$(PYTHON)" || { echo "archlab needs Python 3.11 or newer, and none is on PATH:" \
		"install one, or name it with make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing archlab$(EXTRAS) into $(VENV) ($$($(BIN)/python --version)); the first time takes minutes"
	@$(BIN)/pip install --quiet --constraint $(PINS) --editable ".$(EXTRAS)"
	@touch $(VENV)/.run $@ # what tests need holds what training needs
