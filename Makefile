# make env | demo | test | compat | soak | lint | format | sanitize | docs | clean | help
#
# Everything runs in .venv, which each target builds first if it is missing or stale. Stamps in
# .venv say what was finished, so that a step that failed is done again.

PYTHON        ?= python3
TORCH         ?= torch==2.13.0
PYG           ?= torch_geometric==2.5.3
DEMO_COMMAND  ?= .venv/bin/python examples/demo.py
PYTEST_ARGS   ?=
SOAK_ARGS     ?=
SANITIZE_ARGS ?=

BIN      := .venv/bin
PIP      := $(BIN)/python -m pip --disable-pip-version-check install -q
# A stamp for each value of TORCH: another torch means another environment
TORCH_ID := $(shell printf '%s' '$(TORCH)' | cksum | cut -d' ' -f1)
PY_CODE  := import sys; print("%d.%d.%d" % sys.version_info[:3] + sys.base_prefix.replace("/", "_"))
PY_ID    := $(shell $(PYTHON) -c '$(PY_CODE)')
SOURCES  := pyproject.toml setup.py CMakeLists.txt $(wildcard cpp/* cuda/*)
CXX_FILES = $(wildcard cpp/*.cpp cpp/*.hpp cpp/*.inl cuda/*.cu cuda/*.cuh \
            $(addprefix tests/cuda_shim/*,.cpp .hpp .h .cu) $(addprefix tests/sanitizers/*,.cpp .hpp))

ifeq ($(PY_ID),)
$(error PYTHON=$(PYTHON) does not run. Install Python 3.10 or newer, or name one: make PYTHON=python3.11)
endif

.PHONY: help env demo test compat soak lint format sanitize docs clean

help:
	@echo "make env       build .venv: torch, this package with its extras, Horovod"
	@echo "make demo      train on 2 ranks, at one bit and at full precision (about a minute)"
	@echo "make test      run the tests               (PYTEST_ARGS='-k halo')"
	@echo "make compat    run the tests that use PyG's modules with the oldest PyG that is accepted"
	@echo "make soak      train for an hour, ranks late at random (SOAK_ARGS='--minutes 10 --ranks 4')"
	@echo "make lint      ruff, mypy --strict, clang-format"
	@echo "make format    let ruff and clang-format rewrite the sources"
	@echo "make sanitize  fuzz the kernels under sanitizers, for long (SANITIZE_ARGS='--inputs 1000000')"
	@echo "make docs      build the documentation into build/site, and fail on broken links"
	@echo "make clean     remove .venv, builds and caches; kept Horovod wheels stay"
	@echo "Variables: PYTHON=$(PYTHON)  TORCH='$(TORCH)'  PYG='$(PYG)' (of compat)  HVS_WHEEL_DIR=(where Horovod's wheels are kept)"

env: .venv/.package-$(TORCH_ID) .venv/.horovod-$(TORCH_ID)
	@:

# An environment of another Python is replaced, one of the same Python is kept
.venv/.python-$(PY_ID):
	@echo "env: creating .venv with $(PYTHON)"
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "env: $(PYTHON) cannot create environments. Run: apt-get install -y python3-venv"; exit 1; fi
	@if [ "$$($(BIN)/python -c '$(PY_CODE)' 2>/dev/null)" != '$(PY_ID)' ]; then $(PYTHON) -m venv --clear .venv; fi
	@touch $@

.venv/.torch-$(TORCH_ID): .venv/.python-$(PY_ID)
	@echo "env: installing $(TORCH)"
	@rm -f .venv/.torch-* .venv/.package-* .venv/.horovod-* .venv/.docs-*
	@$(PIP) $(TORCH)
	@touch $@

.venv/.package-$(TORCH_ID): .venv/.torch-$(TORCH_ID) $(SOURCES)
	@echo "env: building horovod_sylvie and installing its extras"
	@$(PIP) -e '.[gnn,examples,dev]'
	@touch $@

# After the package, which brings the command; a new build of the package does not ask for it again
.venv/.horovod-$(TORCH_ID): .venv/.torch-$(TORCH_ID) | .venv/.package-$(TORCH_ID)
	@echo "env: installing Horovod"
	@$(BIN)/python -m horovod_sylvie install-horovod
	@touch $@

# Without Horovod, which no page needs. The package is there, so pip adds what the extra asks for.
.venv/.docs-$(TORCH_ID): .venv/.package-$(TORCH_ID)
	@echo "env: installing the extra docs"
	@$(PIP) 'horovod_sylvie[docs]'
	@touch $@

demo: env
	@echo "demo: $(DEMO_COMMAND)"
	@$(DEMO_COMMAND)

test: env
	@echo "test: pytest $(PYTEST_ARGS)"
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

# Beside the environment's own PyG, which stays as it is
compat: env
	@echo "compat: $(PYG)"
	@$(PIP) --no-deps --upgrade --target .venv/pyg '$(PYG)'
	@PYTHONPATH=.venv/pyg $(BIN)/python -c 'import torch_geometric; print("compat: PyG", torch_geometric.__version__)'
	@PYTHONPATH=.venv/pyg $(BIN)/python -m pytest $(shell grep -l torch_geometric tests/halo/test_*.py)

soak: env
	@echo "soak: benchmarks/soak.py $(SOAK_ARGS)"
	@$(BIN)/python benchmarks/soak.py $(SOAK_ARGS)

lint: env
	@echo "lint: ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "lint: ruff format --check"
	@$(BIN)/ruff format --quiet --check . || (echo "Run: make format"; exit 1)
	@echo "lint: mypy --strict"
	@$(BIN)/mypy --strict --no-error-summary
	@echo "lint: clang-format"
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

format: env
	@echo "format: ruff, clang-format"
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $(CXX_FILES)

sanitize: env
	@echo "sanitize: python -m tests.sanitizers $(SANITIZE_ARGS)"
	@$(BIN)/python -m tests.sanitizers $(SANITIZE_ARGS)

docs: .venv/.docs-$(TORCH_ID)
	@echo "docs: mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mkdocs build --strict
	@echo "docs: build/site/index.html"

clean:
	@echo "clean: removing .venv, builds and caches"
	@rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@rm -f horovod_sylvie/_native*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
