# KV Console. `make help` lists what there is. Written for GNU make 3.81 and later.

PY := .venv/bin/python
CODE := kvcore nodeagent kvconsole audit tenants catalog routing frontend
ONLY ?=
# Tests run side by side, file by file, each side with servers of its own; browser tests last (tests/conftest.py).
JOBS ?= 2
ABREAST := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# What KVC_ACCEPT=full makes longer.
FULL := tests/accept tests/frontend/test_browser_axe.py tests/frontend/test_browser_roles.py \
  tests/frontend/operations/test_browser.py tests/kvconsole/test_schema_fuzz.py tests/tenants/test_foreign.py

.PHONY: help up test test-fast walks accept faults bench cover check fix schema clean console dev

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{printf "%-18s %s\n", $$1, $$2}'

up: console ## the whole console with a reference fleet; RESET=1 starts clean, REPLAY=0 leaves it idle
	@$(PY) -m kvconsole.devserver $(if $(RESET),--reset) $(if $(filter 0,$(REPLAY)),--no-replay)

test: dev ## all tests, with real processes, a real PostgreSQL and a real browser
	@$(PY) -m pytest -m "not slow" $(ABREAST) --durations=25 --tb=short $(ARGS)

test-fast: dev ## without walks, browser and long forms
	@$(PY) -m pytest -m "not walk and not browser and not slow and not accept" $(ABREAST) $(ARGS)

walks: dev ## real processes only
	@$(PY) -m pytest -m "walk or browser" $(ABREAST) $(ARGS)

accept: dev ## what must hold seen from outside and every look of every page, in full size; ONLY=word
	@KVC_ACCEPT=full $(PY) -m pytest $(FULL) $(if $(ONLY),-k $(ONLY)) $(ARGS)

faults: dev ## kills under load and long histories against the oracles, in full length
	@$(PY) -m pytest tests/faults tests/catalog/test_store_histories.py tests/catalog/ingest/test_histories.py $(ARGS)

bench: dev ## figures, one JSON line each; ONLY=word
	@$(PY) -m bench $(ONLY)

cover: dev ## coverage of the fast tests, with its floors
	@$(PY) -m pytest -q -m "not browser" --cov=kvcore --cov=nodeagent --cov-report=term:skip-covered --cov-fail-under=95 \
	  tests/kvcore tests/nodeagent
	@$(PY) -m pytest -q -m "not walk and not browser and not accept" --cov=kvconsole --cov=audit --cov=tenants \
	  --cov=catalog --cov=routing --cov=frontend --cov-report=term:skip-covered --cov-fail-under=90 $(ARGS)

check: dev ## ruff, mypy, import contracts, migrations, Django's own checks
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(CODE)
	@.venv/bin/lint-imports --no-logo
	@KVC_ENV=test $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	@KVC_ENV=test $(PY) manage.py check --fail-level WARNING

fix: dev ## what ruff can put right by itself
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

schema: dev ## build/openapi.json from the code; warnings are errors
	@mkdir -p build
	@KVC_ENV=test $(PY) manage.py spectacular --format openapi-json --validate --fail-on-warn --file build/openapi.json
	@echo build/openapi.json

clean: ## stops nothing, deletes .venv, caches and what `make up` kept
	@if [ -x $(PY) ]; then $(PY) -m kvconsole.devserver --clean; fi
	rm -rf .venv .dev .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

console:
	@requirements/install console

dev:
	@requirements/install dev
