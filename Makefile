# A thin front for CMake: what one types, and nothing that CMake does not do.
#
#   BUILD        build directory                       (build)
#   PREFIX       where `make install` puts things      (/usr/local)
#   DESTDIR      staging directory put before PREFIX
#   JOBS         parallel compilers and tests          (one per processor)
#   FUZZ_SECONDS how long `make fuzz` runs each target (60)
#   COVERAGE_FLAGS thresholds of `make coverage`, as "--library 92 --checkpoint 96"
#   VALGRIND_FLAGS short: the quickest tests alone
#   PYTHON       the Python of `make python` and `make compare` (python3)
#   CMAKE_FLAGS  more options, as -DMUONIUM_BLAS=ON
#   CTEST_FLAGS  which tests to run, as -R pool
#   COMPARE_FLAGS options of pytest for `make compare`, as "-k timm"
#   DEMO_FLAGS   options of `make demo`, as "--steps 100"
#   BENCH_FLAGS  options of `make bench`, as --quick or --save

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 60
COVERAGE_FLAGS ?=
VALGRIND_FLAGS ?=
PYTHON ?= python3
CMAKE_FLAGS ?=
CTEST_FLAGS ?=
COMPARE_FLAGS ?=
DEMO_FLAGS ?=
BENCH_FLAGS ?=

# The makefiles that CMake writes must not inherit from this one.
CMAKE := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake
CONFIGURE = $(CMAKE) -S . "-DCMAKE_INSTALL_PREFIX=$(PREFIX)" $(CMAKE_FLAGS)
CTEST = ctest --no-tests=error --output-on-failure -j$(JOBS) $(CTEST_FLAGS)
SANITIZED = -DMUONIUM_TESTS=ALL -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1

# The thread sanitizer of older compilers fails where the kernel randomises
# addresses widely; where the system allows it, that is switched off for the tests.
FIXED_ADDRESSES = $$(setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: all amalgamation demo bench docs test compare sanitize valgrind fuzz coverage python wheels install format clean help
.NOTPARALLEL:

all: ## Build the library and the command into build/ (the default)
	@tools/install-deps build
	@$(CONFIGURE) -B "$(BUILD)"
	@$(CMAKE) --build "$(BUILD)" -j$(JOBS)

demo: all ## Train a small GPT with AdamW and with Muon: progress, table, demo.svg
	@"$(BUILD)/muonium" demo $(DEMO_FLAGS)

bench: all ## Measure this machine in up to five minutes; BENCH_FLAGS=--quick: under one
	@bench/report.py "$(BUILD)/muonium" $(BENCH_FLAGS)

docs: all ## Make the documentation site in build/site/html, with MkDocs from PyPI (60 MB, once)
	@tools/install-deps compare
	@PYTHON="$(PYTHON)" tools/docs "$(BUILD)"

test: ## Build everything and run every test
	@tools/install-deps test
	@$(CONFIGURE) -B "$(BUILD)" -DMUONIUM_TESTS=ALL
	@$(CMAKE) --build "$(BUILD)" -j$(JOBS)
	@cd "$(BUILD)" && $(CTEST)

compare: all ## Run every recipe beside its original, installed from PyPI (6 GB, once)
	@tools/install-deps compare
	@PYTHON="$(PYTHON)" tools/compare "$(BUILD)" $(COMPARE_FLAGS)

sanitize: ## Run the tests under the address, undefined-behaviour and thread sanitizers
	@tools/install-deps test
	@$(CONFIGURE) -B build-asan $(SANITIZED) -DMUONIUM_SANITIZE=address,undefined
	@$(CMAKE) --build build-asan -j$(JOBS)
	@cd build-asan && $(CTEST)
	@$(CONFIGURE) -B build-tsan $(SANITIZED) -DMUONIUM_SANITIZE=thread
	@$(CMAKE) --build build-tsan -j$(JOBS) --target thread-tests
	@cd build-tsan && $(FIXED_ADDRESSES) $(CTEST) -L threads

valgrind: ## Run the quick C tests under valgrind; VALGRIND_FLAGS=short the quickest
	@tools/install-deps valgrind
	@$(CONFIGURE) -B build-valgrind -DMUONIUM_TESTS=ALL -DMUONIUM_MPI=OFF \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo
	@$(CMAKE) --build build-valgrind -j$(JOBS)
	@tools/valgrind build-valgrind $(VALGRIND_FLAGS)

fuzz: ## Feed the parsers random files for FUZZ_SECONDS each
	@tools/install-deps fuzz
	@CC=clang $(CONFIGURE) -B build-fuzz -DMUONIUM_FUZZ=ON -DMUONIUM_SANITIZE=address,undefined
	@$(CMAKE) --build build-fuzz -j$(JOBS) --target fuzzers
	@tools/fuzz build-fuzz $(FUZZ_SECONDS)

# The C tests and those of the command: the Python ones execute nothing more of the library,
# and code that counts its branches trains models for minutes. The second library, which runs
# under MPI, is left out.
coverage: ## Tell which lines and branches the tests execute; COVERAGE_FLAGS sets the least
	@tools/install-deps test
	@$(CONFIGURE) -B build-coverage -DMUONIUM_TESTS=ALL -DMUONIUM_MPI=OFF \
		-DCMAKE_BUILD_TYPE=Debug -DMUONIUM_COVERAGE=ON
	@$(CMAKE) --build build-coverage -j$(JOBS)
	@find build-coverage -name '*.gcda' -delete
	@cd build-coverage && $(CTEST) -R '^test_[a-z0-9_]+$$|^faults$$|^test_cli.*\.py$$'
	@tools/coverage build-coverage $(COVERAGE_FLAGS)

python: all ## Make the Python package importable from the checkout
	@PYTHONPATH=python $(PYTHON) -c 'import muonium; print("muonium", muonium.__version__)'
	@echo 'It is in $(CURDIR)/python: export PYTHONPATH="$(CURDIR)/python", or pip install .'

wheels: ## Write the sdist, and wheels for x86-64 and Arm, into build/wheels; tools from PyPI (400 MB, once)
	@tools/install-deps compare
	@PYTHON="$(PYTHON)" tools/wheels "$(BUILD)/wheels"

amalgamation: ## Write the library as two files, build/amalgamation/muonium.c and muonium.h
	@tools/make-amalgamation "$(BUILD)/amalgamation"
	@echo 'Compile "$(BUILD)/amalgamation/muonium.c" with your program; link with -lm -pthread'

install: all ## Install to PREFIX (/usr/local), below DESTDIR if given
	@DESTDIR="$(DESTDIR)" $(CMAKE) --install "$(BUILD)"

format: ## Format all C files in place
	@tools/format

clean: ## Remove all build directories
	rm -rf "$(BUILD)" build-asan build-tsan build-valgrind build-fuzz build-coverage build-ci

help: ## List these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
