# `make demo` and `make test` need Python >= 3.11, make and g++; everything else they install into .venv.
PYTHON ?= python3
VENV ?= .venv
DEVICE ?= cuda
BIN := $(VENV)/bin
NATIVE := $(shell find csrc -type f)
# The editable install maps module names to files, so a module that comes, goes or moves asks for a new one.
READY := $(VENV)/.ready-$(shell find ser_fast trainer -name '*.py' | LC_ALL=C sort | cksum | cut -d ' ' -f 1)

.PHONY: venv demo test test-full lint format bench gpu-check toy-models clean

venv: $(READY)

$(READY): pyproject.toml constraints.txt $(NATIVE)
	tools/make_venv.sh $(PYTHON) $(VENV)
	touch $@

demo: venv
	$(BIN)/python examples/demo.py

test: venv
	$(BIN)/pytest -m "not full"

test-full: venv
	$(BIN)/pytest --full-report=bench/results/test-full.md

lint: venv
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(filter %.h %.cpp,$(NATIVE))

format: venv
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format . ; $(BIN)/clang-format -i $(filter %.h %.cpp,$(NATIVE))

# Both models of the toy world from nothing, in an hour or so on two cores with bfloat16 instructions; goes on where it was stopped.
toy-models: venv
	$(BIN)/python -m trainer.toy.build

bench: venv
	$(BIN)/pytest bench --benchmark-columns=median,iqr,rounds --benchmark-sort=name

# On the GPU machine there is no network: torch, transformers and the build tools are those of the system.
gpu-check:
ifeq ($(DEVICE),cpu)
	$(MAKE) venv
	$(BIN)/python bench/gpu_check.py --device cpu
else
	$(PYTHON) -m pip install --no-build-isolation --no-deps . || echo "native part not built: its stages will say so"
	$(PYTHON) bench/gpu_check.py --device $(DEVICE)
endif

clean:
	rm -rf $(VENV) build dist demo-out
