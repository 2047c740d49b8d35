# Comem. Two commands do all the set-up on a fresh Debian or Ubuntu machine that has Rust and a C compiler:
#
#   make demo    runs the workload sea under each engine of objects, and sor under each of pages, checks every result, draws tables and a picture (out/demo);
#                and NumPy programs on shared arrays
#   make test    runs every test
#
# Others: build, python (the Python package), lint, bench, soak (long simulations, programs again and again, random programs), fuzz (the wire code), profile
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
BENCH ?= all
SOAK ?= --seeds 0..20000
FUZZ ?= --seconds 30

# What is built to be fast uses what was counted of the library's code; PROFILE=no leaves that out.
PROFILE ?= yes
PROFILE_FLAGS := $(shell [ "$(PROFILE)" = no ] || tools/profile.sh flags)
ifneq ($(PROFILE_FLAGS),)
ifdef RUSTFLAGS
programs python soak fuzz: export RUSTFLAGS := $(RUSTFLAGS) $(PROFILE_FLAGS)
else
programs python soak fuzz: export CARGO_BUILD_RUSTFLAGS := $(CARGO_BUILD_RUSTFLAGS) $(PROFILE_FLAGS)
endif
endif

.PHONY: build demo python test lint bench soak fuzz profile clean help tools-build tools-test programs workloads

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

build: workloads

demo: build
	@$(RELEASE)/comem-demo $(DEMO)
	@printf '\nsor on shared pages, 4 nodes against one process (comem compare):\n'
	@$(RELEASE)/comem compare -n 4 -t 1 --repeat 1 -- out/workloads/sor --preset tiny
	@examples/python/demo.sh out/demo

out/bench/access: bench/access.c include/comem.h $(RELEASE)/libcomem.so
	@mkdir -p out/bench
	$(CC) -std=c11 -O2 -Wall -Wextra -pedantic -Iinclude $< -o $@ $(RELEASE)/libcomem.so -Wl,-rpath,$(abspath $(RELEASE))

# The Python package with the command, in a virtual environment of its own: out/python/venv/bin/python.
PYTHON ?= python3
PIP = out/python/venv/bin/python -m pip install --quiet --disable-pip-version-check
python: tools-build
	@tests/setup.sh python
	@[ -x out/python/venv/bin/python ] || $(PYTHON) -m venv out/python/venv
	@$(PIP) numpy pytest >out/python/pip.log 2>&1 || \
		{ echo "SKIP: Python: numpy and pytest could not be installed: $$(tail -n 1 out/python/pip.log)"; exit 1; }
	@$(PIP) cloudpickle joblib tqdm matplotlib >out/python/pip.log 2>&1 || \
		echo "SKIP: Python: cloudpickle, joblib, tqdm and matplotlib could not be installed: $$(tail -n 1 out/python/pip.log)"
	@CARGO_TARGET_DIR="$(abspath $(CARGO_TARGET_DIR))" out/python/venv/bin/python -m pip install --quiet --disable-pip-version-check ./crates/python

test: tools-test
	@tests/all.sh

lint: tools-build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench: build
	@$(MAKE) --no-print-directory out/bench/access
	@$(RELEASE)/comem-bench $(BENCH)

soak: workloads
	@$(MAKE) --no-print-directory -C tests/random COMEM_LIB="$(abspath $(RELEASE))" OUT="$(abspath out/workloads)"
	@$(CARGO) build --release -p comem-sim
	@$(RELEASE)/comem-sim $(SOAK)
	@$(RELEASE)/comem-sim --pages $(SOAK)
	@$(RELEASE)/comem-sim --pages --delays 2
	@COMEM_BIN="$(RELEASE)" tests/soak.sh

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
