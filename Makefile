# Every target sets up what it needs: Python 3.11, pip and make are enough. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 6  # more than cores: most tests wait more than they compute
PYTEST := -m pytest -n $(JOBS) --dist loadgroup
# Tests start about a thousand Python processes. Each starts a third faster where compiled modules may be kept.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help walk setup format lint types layers quick check demo demo-dashboard ha-demo screenshots example-fastapi example-django clean lock site wheel release coverage \
  test test-slow test-databases test-rabbitmq test-celery test-celery-upstream test-celery-matrix test-django-upstream test-matrix test-oldest test-pythons test-flaky check-matrix \
  prove prove-release bench bench-ledger bench-wire bench-native bench-recovery bench-zombies bench-drain bench-delayed bench-storms bench-deploy bench-steps bench-guards bench-schedules bench-batches bench-limits bench-events bench-observability bench-slo bench-dashboard bench-cluster bench-shards \
  bench-celery bench-celery-chaos bench-celery-outages bench-outbox bench-outbox-chaos

help:                  ## List the targets
	@awk -F'## ' '/^[a-z][a-zA-Z0-9_ -]*:.*## / { split($$1, names, ":"); printf "  make %-36s %s\n", names[1], $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready   ## Install the development tools and libraries into .venv
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

$(VENV)/.types: $(VENV)/.ready requirements/types.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/types.lock
	@touch $@

$(VENV)/.matrix: $(VENV)/.ready requirements/matrix.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/matrix.lock
	@touch $@

# SUITES="tests/ledger tests/run" chooses folders or files, for each of the targets below.
SUITES ?= tests
test: setup            ## Run the tests, except for the slow ones and for MariaDB, MySQL, PgBouncer and RabbitMQ
	$(BIN)/python $(PYTEST) -m "not slow and not databases" $(SUITES)

test-slow: setup       ## Run the slow tests: real Celery workers, frozen servers, random kills, script mutants, every page of the docs, the examples in a browser
	$(BIN)/python $(PYTEST) -m "slow and not databases" $(SUITES)

test-databases: setup  ## Run the outbox and inbox tests that need MariaDB, MySQL or PgBouncer
	$(BIN)/python $(PYTEST) -m databases $(SUITES)

test-flaky: setup      ## Run `make test` N times (10) with every core kept busy, and report each failure
	$(BIN)/python -m tests.support.repeat --times $(or $(N),10) --jobs $(JOBS) $(SUITES)

CELERY_SUITES ?= tests/conformance tests/celery
test-celery: setup     ## Run every engine behaviour on every Celery pool, and on RabbitMQ
	$(BIN)/python $(PYTEST) --engines $(CELERY_SUITES)

test-celery-upstream: setup  ## Run Celery's own integration tests (CELERY_SOURCE) with and without Relier, and compare
	$(BIN)/python -m tests.celery_upstream.compare

test-django-upstream: setup  ## Run the tests of Django's tasks (DJANGO_TASKS_TESTS: django/tests/tasks, or tests of django-tasks) on Relier
	$(BIN)/python -m tests.django_upstream.run $(DJANGO_TASKS_TESTS)

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

test-celery-matrix: $(CELERIES:%=.venvs/celery-%/.ready)  ## Run the Celery smoke tests on every supported version of Celery
	set -e; for version in $(CELERIES); do \
	  echo "Celery $$version: $$(.venvs/celery-$$version/bin/celery --version)"; \
	  .venvs/celery-$$version/bin/python $(PYTEST) -q --engines -m smoke tests/celery; \
	  .venvs/celery-$$version/bin/python $(PYTEST) -q --engines -k "celery-prefork-valkey or test_celery_worker" tests/conformance; \
	done

.venvs/oldest/.ready: requirements/oldest.lock pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

test-oldest: .venvs/oldest/.ready  ## Run the tests with the oldest version of every dependency that pyproject.toml allows
	.venvs/oldest/bin/python $(PYTEST) $(SUITES)

# Each version that is installed, or that uv can install: PYTHONS="3.11 3.14" SUITES=tests/run
PYTHONS ?= 3.11 3.12 3.13 3.14
PYTHONS_SUITES = $(if $(filter-out tests,$(SUITES)),$(SUITES),$(PYTHONS_QUICK))
PYTHONS_QUICK := tests/run tests/submit tests/lock tests/test_arguments.py tests/test_codec.py tests/test_envelope.py tests/test_keyring.py tests/test_public_names.py
test-pythons:          ## Run a quick part of the tests (or SUITES) on Python 3.11, 3.12, 3.13 and 3.14
	PYTHON=$(PYTHON) JOBS=$(JOBS) .ci/test-pythons "$(PYTHONS)" $(PYTHONS_SUITES)

MATRIX_SUITES = $(if $(filter-out tests,$(SUITES)),$(SUITES),tests/ledger tests/store)
test-matrix: $(VENV)/.matrix  ## Run the store and ledger tests on every supported server
	$(BIN)/python $(PYTEST) --matrix $(MATRIX_SUITES)

check: quick site wheel test-slow test-databases test-rabbitmq check-matrix prove  ## Run exactly what CI runs
quick: lint types layers test  ## Run lint, types, layers and the tests: what you run before each commit

test-rabbitmq: setup   ## Run every engine behaviour on RabbitMQ, where it is installed
	$(BIN)/python $(PYTEST) --engines tests/conformance/test_rabbitmq.py

check-matrix: $(VENV)/.matrix  # `test` and `test-slow` have run them on the embedded server
	$(BIN)/python $(PYTEST) --other-servers tests/ledger

# COVERAGE_SUITES="tests/run" for a part; the processes that tests start are measured too.
COVERAGE_SUITES ?= tests/ledger tests/run tests/engines tests/submit
# They stop a thread at any instruction, so also inside the code that measures.
COVERAGE_UNFIT := test_a_stop_at_any_instruction_ends_only_its_own_call test_a_late_stop_never_interrupts_the_next_call
coverage: setup        ## Report the branch coverage of src/relier by the ledger, run, engines and submit tests
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run $(PYTEST) $(COVERAGE_UNFIT:%=--deselect tests/run/test_threads.py::%) $(COVERAGE_SUITES)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: setup            ## Check style with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup          ## Fix style with ruff, as far as it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.types  ## Check types with mypy (src strictly, tests and bench lightly), and what users' type checkers see
	$(BIN)/mypy
	$(BIN)/python -m tests.public_types.check

layers: setup          ## Check which package imports which
	$(BIN)/lint-imports

# What builds and checks a release, locked like everything else.
$(VENV)-release/.ready: requirements/release.lock
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/release.lock
	@touch $@

wheel: $(VENV)-release/.ready  ## Build the wheel and run a first job from it in an empty environment
	rm -rf dist $(VENV)-wheel
	$(VENV)-release/bin/python -m build --no-isolation --wheel --outdir dist . >/dev/null
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt dist/*.whl
	cd dist && ../$(VENV)-wheel/bin/python ../tests/wheel_smoke.py

# DATE=2026-11-30 instead of today; PYTHONS="3.11 3.13" instead of all.
release: $(VENV)-release/.ready  ## Build a release twice, check it, run it on each Python; publishes and tags nothing
	PYTHON=$(PYTHON) $(VENV)-release/bin/python -m tools.release $(DATE:%=--date %) --pythons "$(PYTHONS)"

demo: setup            ## Watch workers being killed and frozen without losing a task (about half a minute)
	PYTHONPATH=examples $(BIN)/python -m demo

demo-dashboard: setup  ## Watch the same in a browser: worker processes die by kill -9 while the dashboard is open
	PYTHONPATH=examples $(BIN)/python -m demo.dashboard

screenshots: setup     ## Take the pictures of the dashboard in docs/images with Chromium
	$(BIN)/python -m tests.dashboard.screens

ha-demo: setup         ## Watch the primary being killed, frozen and cut off: what each durability level keeps (about three minutes)
	PYTHONPATH=examples $(BIN)/python -m ha_demo

example-fastapi: setup ## Run a small shop with FastAPI: orders, payments, a report with progress
	$(BIN)/python examples/start.py examples/fastapi_shop

example-django: setup  ## Run the same shop with Django, and its admin
	$(BIN)/python examples/start.py examples/django_shop

prove: setup           ## Check 10^4 simulated schedules, 200 differential seeds, the exhaustive search and every mutant
	$(BIN)/python -m proof ci

# A run continues where the record (proof/record.toml) ends, and stops after MINUTES. JOBS: processes; START: first seed.
prove-release: setup   ## Check 10^6 simulated schedules (MINUTES=30 of them), and record which ones
	$(BIN)/python -m proof release $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOBS),--jobs $(JOBS)) $(if $(START),--start $(START))

bench: bench-ledger bench-recovery bench-native  ## Run the three most important benchmarks
bench-ledger: setup    ## Measure Redis CPU, commands, round trips and bytes per move against their targets
	$(BIN)/python -m bench.ledger

bench-wire: $(VENV)-bench/.ready  ## Compare our path to the store with redis-py, valkey-py, coredis and valkey-glide
	$(VENV)-bench/bin/python -m bench.wire $(MODE)

bench-native: $(VENV)-bench/.ready setup  ## Compare our worker with Celery, dramatiq and taskiq in one run, then observed with unobserved
	$(VENV)-bench/bin/python -m bench.native
	$(BIN)/python -m bench.observability

bench-celery: $(VENV)-bench/.ready  ## Compare Celery with Relier to plain Celery in one run
	$(VENV)-bench/bin/python -m bench.celery_engine

bench-celery-chaos bench-celery-outages: setup  ## Kill Celery workers at random while canvases run; kill pool processes, freeze and empty brokers
	$(BIN)/python -m bench.$(subst -,_,$(@:bench-%=%))

# MODE="--database mariadb --ordered --repeatable-read --quick", any of them
bench-outbox: $(VENV)-bench/.ready  ## Compare the outbox with django-celery-outbox: latency, throughput, cost of failures
	$(VENV)-bench/bin/python -m bench.outbox $(MODE)

bench-outbox-chaos: setup  ## Kill relays at 200 random moments and check that every committed row becomes one record
	$(BIN)/python -m bench.outbox_chaos $(MODE)

bench-recovery: setup  ## Measure how soon the tasks of killed workers run again
	$(BIN)/python -m bench.recovery

bench-schedules: setup  ## Test schedules with wrong clocks, killed and frozen schedulers, a frozen store
	$(BIN)/python -m bench.schedules

bench-zombies bench-drain bench-delayed: setup  ## Test late commits, drains at random moments, a million delayed tasks
bench-storms bench-deploy bench-steps: setup    ## Test the guards under kill -9: push storms, a deploy, ten-step tasks
bench-guards: setup                             ## Measure what each guard costs per task
bench-batches: setup                            ## Test workflows under kill -9: 10,000 batches, one of 100,000, a cancel
bench-limits: setup                             ## Kill workers under limits at run time; measure what limits cost
bench-events: setup                             ## Measure what events cost the store, compared with the bare moves
bench-observability: setup                      ## Measure what metrics, objectives, events and traces cost a worker, all on and all off
bench-slo: setup                                ## Measure what counting outcomes costs the store, compared with the bare moves
bench-dashboard: setup                          ## Measure every page of the dashboard with 1,000,000 tasks in 5,000 queues
bench-cluster: setup                            ## Measure 1,000 members with 100,000 tasks; count the keys that are left after kills
bench-shards: setup                             ## Measure the throughput of 1, 2 and 4 shards, and what binds on this machine
bench-zombies bench-drain bench-delayed bench-storms bench-deploy bench-steps bench-guards bench-batches bench-limits bench-events bench-observability bench-slo bench-dashboard bench-cluster bench-shards:
	$(BIN)/python -m bench.$(@:bench-%=%)

$(VENV)-site/.ready: requirements/site.lock
	$(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/site.lock
	@touch $@

# VERSION=1.1.0 instead of the version in src/relier/version.py; SITE_URL=https://… where it will be served. Versions that
# were built before stay beside it.
VERSION ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/relier/version.py)
site: $(VENV)-site/.ready  ## Build the documentation site into build/site/VERSION; a broken link or anchor is an error
	NO_MKDOCS_2_WARNING=1 SITE_URL=$(SITE_URL:%=%/$(VERSION)/) $(VENV)-site/bin/mkdocs build --quiet --strict --site-dir build/site/$(VERSION)
	$(VENV)-site/bin/python tools/site_versions.py build/site

walk: setup            ## List the files and functions that one task passes, from push to done
	$(BIN)/python tools/walk.py

lock:                  ## Rewrite the lock files from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/python -m pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group dev pyproject.toml -o requirements/dev.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group matrix -c requirements/dev.lock pyproject.toml -o requirements/matrix.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group types -c requirements/dev.lock pyproject.toml -o requirements/types.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group bench -c requirements/dev.lock pyproject.toml -o requirements/bench.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group pyproject.toml:site -o requirements/site.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group pyproject.toml:release -o requirements/release.lock
	set -e; for version in 5.4 5.5 5.6; do \
	  $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --group celery-$$(echo $$version | tr . -) pyproject.toml -o requirements/celery-$$version.lock; \
	done
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --generate-hashes --resolution lowest-direct --all-extras --group oldest pyproject.toml -o requirements/oldest.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --all-extras pyproject.toml -o requirements/constraints.txt
	rm -rf $(VENV)-lock

clean:                 ## Remove everything that make built
	rm -rf .venvs $(VENV) $(VENV)-bench $(VENV)-site $(VENV)-wheel $(VENV)-release $(VENV)-lock dist build .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache
