# Comem. Two commands do all the set-up on a fresh Debian or Ubuntu machine that has Rust and a C compiler:
#
#   make demo    shows from which size on several nodes beat one process, what each engine makes of one program, and NumPy programs on
#                shared arrays; checks every result, and draws pictures (out/demo). About four minutes, once everything is built
#   make test    runs every test
#
# To install (docs/installation.md): install and uninstall (PREFIX=/usr/local, LIBDIR=PREFIX/lib, DESTDIR=), deb (a
# Debian package), wheel (a Python package).
#
# Others: build (with the plug-in for `comem-cc --inline`, where LLVM 19 is there), python (the Python package), teaching (docs/teaching.md), lint, bench, soak (long simulations, programs again and again, random programs, interfaces of other systems in every combination), packages (the crates compiled from their packages, the image for Kubernetes), fuzz (the wire code), profile
# (counts what the library's code does most, for this compiler: tools/profile.sh), clean. CARGO_TARGET_DIR is respected.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
RELEASE := $(CARGO_TARGET_DIR)/release

# What `make demo DEMO="--iterations 10"`, `make bench BENCH=ping`, `make soak SOAK="--seeds 0..100000"` and
# `make fuzz FUZZ="--seconds 600"` pass on.
DEMO ?=
DEMO_SOR := --rows 1024 --columns 1024 --iterations 60
BENCH ?= all
SOAK ?= --seeds 0..20000
FUZZ ?= --seconds 30

# What is built to be fast uses what was counted of the library's code; PROFILE=no leaves that out.
PROFILE ?= yes
PROFILE_FLAGS := $(shell [ "$(PROFILE)" = no ] || tools/profile.sh flags)
ifneq ($(PROFILE_FLAGS),)
ifdef RUSTFLAGS
programs python wheel soak fuzz: export RUSTFLAGS := $(RUSTFLAGS) $(PROFILE_FLAGS)
else
programs python wheel soak fuzz: export CARGO_BUILD_RUSTFLAGS := $(CARGO_BUILD_RUSTFLAGS) $(PROFILE_FLAGS)
endif
endif

.PHONY: install uninstall deb wheel packages build compiler demo teaching python test lint bench soak fuzz profile clean help tools-build tools-test programs workloads

help:
	@sed -n '/^# Comem/,/^$$/s/^# \{0,1\}//p' Makefile

tools-build:
	@tests/setup.sh build

tools-test:
	@tests/setup.sh test

# The command, the C library, the demonstration and the benchmarks.
programs: tools-build
	@$(CARGO) build --release -p comem-cli -p comem-c -p comem-wrap -p comem-bench
	@[ "$(PROFILE)" = no ] || tools/profile.sh check

workloads: programs
	@$(MAKE) --no-print-directory -C workloads COMEM_LIB="$(abspath $(RELEASE))" OUT="$(abspath out/workloads)"

# The plug-in for clang that puts checks into programs: out/compiler/libcomem_inline.so. Nothing else needs LLVM.
compiler: tools-build
	@$(MAKE) --no-print-directory -C compiler OUT="$(abspath out/compiler)"

build: workloads compiler
	@printf '\nComem is built: %s\nWhat to try next:\n' '$(RELEASE)/comem'
	@printf '  %-52s %s\n' \
		'make demo' 'see what nodes are worth: tables and pictures, checked' \
		'$(RELEASE)/comem run -n 2 out/workloads/sor' 'one program on two nodes' \
		'$(RELEASE)/comem doctor' 'what this machine lets Comem do' \
		'docs/inline.md' 'programs with checks in their own code: comem-cc --inline' \
		'make python' 'the Python package: out/python/venv/bin/python' \
		'docs/c.md, docs/python.md, docs/teaching.md' 'first programs, a tutorial, a class'

# Where it is installed. Paths may hold blanks, so they travel as variables. Who becomes root to install often has no
# cargo: then what is built is taken as it is.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
BUILD ?= $(RELEASE)
FRESH := $(if $(shell command -v $(CARGO) 2>/dev/null),programs compiler)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export LIBDIR := $(LIBDIR)
install uninstall: export DESTDIR := $(DESTDIR)
install deb: export BUILD := $(BUILD)

install: $(FRESH)
	@deploy/install.sh install

uninstall:
	@deploy/install.sh uninstall

# A Debian package: out/deb/comem_VERSION_ARCHITECTURE.deb.
deb: $(FRESH)
	@deploy/deb.sh out/deb

# A wheel with command, library and headers: out/wheels/comem-VERSION-cp39-abi3-PLATFORM.whl. It needs no Rust where it
# is installed.
wheel: tools-build out/python/venv/bin/python
	@mkdir -p out/wheels
	@rm -f out/wheels/comem-*.whl
	@CARGO_TARGET_DIR="$(abspath $(CARGO_TARGET_DIR))" tools/progress.sh out/wheels/build.log \
		out/python/venv/bin/python -m pip wheel --verbose --disable-pip-version-check --no-deps --wheel-dir out/wheels ./crates/python
	@printf 'The wheel is there: %s\nTo install it: pip install %s\n' out/wheels/comem-*.whl out/wheels/comem-*.whl

out/python/venv/bin/python:
	@PYTHON=$(PYTHON) tests/setup.sh python
	@echo "Python 1/4: a virtual environment, out/python/venv"
	@mkdir -p out/python
	@$(PYTHON) -m venv out/python/venv

# The programs alone, without a word about what to do next.
demo: workloads
	@$(RELEASE)/comem-demo $(DEMO)
	@printf '\n3. What do the engines of pages make of one program? sor on two nodes against one (comem compare):\n\n'
	@$(RELEASE)/comem compare -n 2 -t 1 --repeat 3 -- out/workloads/sor $(DEMO_SOR)
	@printf '\nhlrc moves the rows at the borders between the nodes at barriers; under msi whole pages travel, one writer at a time.\n'
	@examples/python/demo.sh out/demo

# What docs/teaching.md runs: small programs, and the simulator with litmus programs and diagrams.
teaching: programs
	@$(CARGO) build --release -p comem-sim
	@mkdir -p out/teaching
	@for name in false_sharing store_buffering; do \
		$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude "examples/teaching/$$name.c" -o "out/teaching/$$name" $(RELEASE)/libcomem.so \
			-Wl,-rpath,$(abspath $(RELEASE)) || exit 1; done
	@echo "Built: out/teaching/false_sharing, out/teaching/store_buffering and $(RELEASE)/comem-sim; docs/teaching.md says what to show"

out/bench/access: bench/access.c include/comem.h $(RELEASE)/libcomem.so
	@mkdir -p out/bench
	$(CC) -std=c11 -O2 -Wall -Wextra -pedantic -Iinclude $< -o $@ $(RELEASE)/libcomem.so -Wl,-rpath,$(abspath $(RELEASE))

# The Python package with the command, in a virtual environment of its own: out/python/venv/bin/python.
PYTHON ?= python3
PIP = out/python/venv/bin/python -m pip install --quiet --disable-pip-version-check
python: tools-build out/python/venv/bin/python
	@echo "Python 2/4: numpy and pytest"
	@$(PIP) numpy pytest >out/python/pip.log 2>&1 || \
		{ echo "SKIP: Python: numpy and pytest could not be installed: $$(tail -n 1 out/python/pip.log)"; exit 1; }
	@echo "Python 3/4: cloudpickle, joblib, tqdm and matplotlib"
	@$(PIP) cloudpickle joblib tqdm matplotlib >out/python/pip.log 2>&1 || \
		echo "SKIP: Python packages: cloudpickle, joblib, tqdm and matplotlib could not be installed: $$(tail -n 1 out/python/pip.log)"
	@echo "Python 4/4: Comem itself (some minutes the first time)"
	@rm -f out/python/wheels/comem-*.whl
	@CARGO_TARGET_DIR="$(abspath $(CARGO_TARGET_DIR))" tools/progress.sh out/python/build.log \
		out/python/venv/bin/python -m pip wheel --verbose --disable-pip-version-check --no-deps --wheel-dir out/python/wheels ./crates/python
	@$(PIP) --force-reinstall --no-deps out/python/wheels/comem-*.whl
	@echo "The package is there. Try: out/python/venv/bin/python -m comem run -n 2 out/python/venv/bin/python examples/python/heat.py"

test: tools-test
	@tests/all.sh

lint: tools-build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# The kernels as they are built for tests, and with more optimisation; what they are compared with.
bench: workloads
	@$(MAKE) --no-print-directory out/bench/access
	@$(MAKE) --no-print-directory -C workloads COMEM_LIB="$(abspath $(RELEASE))" OUT="$(abspath out/workloads/O3)" \
		KERNEL_LEVEL=-O3 kernels kernels-plain mpi
	@$(RELEASE)/comem-bench $(BENCH)

# What takes long of what is handed on: the crates as packages, compiled from these alone, and the image for Kubernetes.
packages: tools-build
	@tests/packages.sh

soak: workloads
	@$(MAKE) --no-print-directory -C tests/random COMEM_LIB="$(abspath $(RELEASE))" OUT="$(abspath out/workloads)"
	@$(CARGO) build --release -p comem-sim
	@$(RELEASE)/comem-sim $(SOAK)
	@$(RELEASE)/comem-sim --pages $(SOAK)
	@$(RELEASE)/comem-sim --pages --delays 2
	@for engine in lrc multicast; do \
		$(RELEASE)/comem-sim --pages --engine $$engine --seeds 0..2000 && \
		$(RELEASE)/comem-sim --pages --engine $$engine --seeds 0..2000 --messages || exit 1; \
	done
	@COMEM_BIN="$(RELEASE)" tests/soak.sh
	@COMEM_TEST_EVERY=1 COMEM_BIN="$(RELEASE)" COMEM_WORKLOADS="$(abspath out/workloads)" tests/compat.sh

fuzz: tools-build
	@$(CARGO) build --release -p comem-bench --bin comem-fuzz
	@$(RELEASE)/comem-fuzz $(FUZZ)

profile:
	@tools/profile.sh wants
	@$(MAKE) --no-print-directory build PROFILE=no
	@$(MAKE) --no-print-directory -C tests/random COMEM_LIB="$(abspath $(RELEASE))" OUT="$(abspath out/workloads)"
	@tools/profile.sh make

clean:
	$(CARGO) clean
	rm -rf out
