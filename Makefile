# Every target sets up what it needs: Python 3.11, pip and make are enough. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 3  # most tests wait more than they compute

.DEFAULT_GOAL := help
.PHONY: help walk quick test-rabbitmq check-matrix setup lock demo test test-matrix check lint format types layers wheel prove prove-release bench bench-ledger bench-wire bench-native bench-recovery bench-zombies bench-drain bench-delayed bench-storms bench-deploy bench-steps bench-guards bench-celery bench-celery-chaos bench-celery-outages bench-outbox bench-outbox-chaos test-celery test-celery-upstream test-celery-matrix test-oldest clean

help:                  ## this list
	@awk -F'## ' '/^[a-z][a-zA-Z0-9_ -]*:.*## / { split($$1, names, ":"); printf "  make %-36s %s\n", names[1], $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready   ## the tools and libraries of development, in .venv
$(VENV)/.ready: requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)-bench/.ready: requirements/bench.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.lock
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.matrix: $(VENV)/.ready requirements/matrix.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/matrix.lock
	@touch $@

test: setup            ## the tests, on the embedded server
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

CELERY_SUITES ?= tests/conformance tests/celery
test-celery: setup     ## every behaviour on every Celery pool, and on RabbitMQ
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --engines $(CELERY_SUITES)

test-celery-upstream: setup  ## Celery's own integration tests, from CELERY_SOURCE, plain and adopted: what differs
	$(BIN)/python -m tests.celery_upstream.compare

# The newest is whatever pip finds; the others are locked.
CELERIES ?= 5.4 5.5 5.6 newest
.venvs/celery-newest/.ready: requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'celery[redis]'
	@touch $@
.venvs/celery-%/.ready: requirements/celery-%.lock pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

test-celery-matrix: $(CELERIES:%=.venvs/celery-%/.ready)  ## the smoke of the Celery engine on every version of Celery we support
	set -e; for version in $(CELERIES); do \
	  echo "Celery $$version: $$(.venvs/celery-$$version/bin/celery --version)"; \
	  .venvs/celery-$$version/bin/python -m pytest -q -n $(JOBS) --dist loadgroup --engines -m smoke tests/celery; \
	  .venvs/celery-$$version/bin/python -m pytest -q -n $(JOBS) --dist loadgroup --engines -k "celery-prefork-valkey or test_celery_worker" tests/conformance; \
	done

.venvs/oldest/.ready: requirements/oldest.lock pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

OLDEST_SUITES ?= tests
test-oldest: .venvs/oldest/.ready  ## the tests with the oldest version of every dependency that pyproject.toml allows
	.venvs/oldest/bin/python -m pytest -n $(JOBS) --dist loadgroup $(OLDEST_SUITES)

SUITES ?= tests/ledger tests/store
test-matrix: $(VENV)/.matrix  ## the store and ledger suites on every server we support
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --matrix $(SUITES)

check: quick wheel test-rabbitmq check-matrix prove  ## exactly what CI runs
quick: lint types layers test  ## the part of it that needs no servers of your own

test-rabbitmq: setup   ## every behaviour on RabbitMQ, where it is installed
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --engines tests/conformance/test_rabbitmq.py

check-matrix: $(VENV)/.matrix
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --matrix tests/ledger

lint: setup            ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup          ## ruff, mending what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup           ## mypy, strict
	$(BIN)/mypy

layers: setup          ## which package may import which
	$(BIN)/lint-imports

wheel: setup           ## the wheel, alone in an empty environment, does the first job
	rm -rf dist $(VENV)-wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt dist/*.whl
	cd dist && ../$(VENV)-wheel/bin/python ../tests/wheel_smoke.py

demo: setup            ## workers are killed and frozen, and nothing is lost (about half a minute)
	PYTHONPATH=examples $(BIN)/python -m demo

prove: setup           ## 10^4 simulated schedules, 200 differential seeds, the exhaustive search, every mutant
	$(BIN)/python -m proof ci

prove-release: setup   ## 10^6 schedules: hours
	$(BIN)/python -m proof release

bench: bench-ledger bench-recovery bench-native  ## the three benchmarks that matter most
bench-ledger: setup    ## Redis CPU, commands, round trips and bytes per move, beside their targets
	$(BIN)/python -m bench.ledger

bench-native: $(VENV)-bench/.ready  ## our worker beside Celery, dramatiq and taskiq, in one run
	$(VENV)-bench/bin/python -m bench.native

# MODE="--uvloop --quick", any of them
bench-wire: $(VENV)-bench/.ready  ## our own path to the store beside redis-py, valkey-py, coredis and valkey-glide
	$(VENV)-bench/bin/python -m bench.wire $(MODE)

bench-celery: $(VENV)-bench/.ready  ## Celery with Relier beside plain Celery, in one run
	$(VENV)-bench/bin/python -m bench.celery_engine

bench-celery-chaos bench-celery-outages: setup  ## kills at random under canvas; dead children, brokers that forget or freeze
	$(BIN)/python -m bench.$(subst -,_,$(@:bench-%=%))

# MODE="--database mariadb --ordered --repeatable-read --quick", any of them
bench-outbox: $(VENV)-bench/.ready  ## the outbox beside django-celery-outbox: how soon, how fast, what trouble costs
	$(VENV)-bench/bin/python -m bench.outbox $(MODE)

bench-outbox-chaos: setup  ## relays killed at 200 random moments: every committed row is one record
	$(BIN)/python -m bench.outbox_chaos $(MODE)

bench-recovery: setup  ## how soon the tasks of killed workers run again
	$(BIN)/python -m bench.recovery

bench-zombies bench-drain bench-delayed: setup  ## late commits, drains at random moments, a million delayed tasks
bench-storms bench-deploy bench-steps: setup    ## the guards under kill -9: push storms, a deploy, ten-step tasks
bench-guards: setup                             ## what each guard costs per task, beside the bare one
bench-zombies bench-drain bench-delayed bench-storms bench-deploy bench-steps bench-guards:
	$(BIN)/python -m bench.$(@:bench-%=%)

walk: setup            ## the files and functions that one task passes, from push to done
	$(BIN)/python tools/walk.py

lock:                  ## rewrite the lock files from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/python -m pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group dev pyproject.toml -o requirements/dev.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group matrix -c requirements/dev.lock pyproject.toml -o requirements/matrix.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group bench -c requirements/dev.lock pyproject.toml -o requirements/bench.lock
	set -e; for version in 5.4 5.5 5.6; do \
	  $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group celery-$$(echo $$version | tr . -) pyproject.toml -o requirements/celery-$$version.lock; \
	done
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --resolution lowest-direct --all-extras --group oldest pyproject.toml -o requirements/oldest.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --all-extras pyproject.toml -o requirements/constraints.txt
	rm -rf $(VENV)-lock

clean:                 ## remove everything that make built
	rm -rf .venvs $(VENV) $(VENV)-bench $(VENV)-wheel $(VENV)-lock dist build .pytest_cache .mypy_cache .ruff_cache
