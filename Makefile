# One virtual environment in .venv serves every target. Another interpreter: make PYTHON=python3.12 ...
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOG := $(VENV)/install.log

.PHONY: help demo serve test test-long lint format protos wheel-demo clean
help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14

demo: $(STAMP)  ## set up, start the whole service, answer two prompts, prove the text, stop
	@$(BIN)/draftfleet demo

serve: $(STAMP)  ## run the service in the foreground
	@$(BIN)/draftfleet serve $(ARGS)

# Threads that wait soon sleep: those of several processes on few cores would spin against each other.
test: lint  ## everything that has to hold before a merge
	@GOMP_SPINCOUNT=100 $(BIN)/python -m pytest $(ARGS)

test-long: $(STAMP)  ## what takes longer: attacks, a cluster of several nodes, every case of the page, more of identity
	@GOMP_SPINCOUNT=100 $(BIN)/python -m pytest -m long $(ARGS)

lint: $(STAMP)  ## style and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/mypy

format: $(STAMP)  ## rewrite to the style
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

protos: $(STAMP)  ## regenerate the stubs beside the .proto files
	@$(BIN)/python -m protos.generate

wheel-demo: $(STAMP)  ## build the wheel, install it elsewhere, run its demo
	@$(BIN)/python -m tests.e2e.wheel_demo

clean:  ## remove what was built, the environment too
	@rm -rf $(VENV) build dist *.egg-info

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "$(PYTHON) is older than 3.10. Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) (the first time downloads a few hundred MB) ..."
	@$(BIN)/python -m pip --disable-pip-version-check install --no-input --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip --disable-pip-version-check install --no-input -c constraints.txt -e '.[dev]' 2>&1 \
	  | tee $(LOG) | awk -v tty="$$(test -t 1 && echo 1 || echo 0)" ' \
	    /^ *(Downloading|Using cached|Installing collected)/ { \
	      line = substr($$0, 1, 100); sub(/^ +/, "", line); \
	      printf (tty ? "\r\033[K  %s" : "  %s\n"), line; fflush() } \
	    END { if (tty) printf "\r\033[K" }' \
	  || { tail -n 20 $(LOG) >&2; exit 1; }
	@touch $@
