# Every target works from a fresh clone on Debian 12 as root; packages are installed by setup.
SHELL := /bin/bash
CARGO ?= cargo
LAB := target/release/terrace-lab
MACHINE ?= machines/cxl-2tier.toml

# What builds and runs on any Linux without clang, QEMU or root.
PURE := core policy proto machine-spec workload sim claims chart

.PHONY: all setup build kernel demo bench test test-quick claims claims-doc validate criterion lint clean
all: build

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace

# The guest's kernel: Debian's package, unpacked under target/, not installed.
kernel: build
	@$(LAB) kernel fetch

demo: build kernel
	@mkdir -p results
	$(LAB) compare --machine $(MACHINE) --workloads nomad-small-read,redis \
	  --systems none,kernel,nomad,oracle --seconds 40 --rounds 2 --within 18m \
	  --json results/demo.json --html results/demo.html

bench: build kernel
	@mkdir -p results
	$(LAB) compare --machine $(MACHINE) \
	  --workloads nomad-small-read,nomad-small-write,nomad-medium-read,nomad-medium-write,nomad-large-read,nomad-large-write,gups,redis \
	  --systems none,kernel,nomad,oracle --json results/bench.json --html results/bench.html

test: build kernel
	@scripts/test

# Unit and property tests of what is pure: the daily round.
test-quick:
	$(CARGO) test --release $(addprefix -p terrace-,$(PURE))

# The papers' claims in the simulator; fails when one that is marked held does not hold.
claims: setup
	$(CARGO) build --release -p terrace-cli
	target/release/terrace claims

claims-doc: setup
	$(CARGO) build --release -p terrace-cli
	@mkdir -p results
	{ sed '/^<!-- results/q' docs/claims.md; echo; target/release/terrace claims --markdown; } > results/claims.md
	mv results/claims.md docs/claims.md

# The simulator against the emulated machine: 48 runs of about a minute, kept one by one.
validate: build kernel
	$(LAB) validate --rounds 2 --document docs/validation.md

# Speed of the policy (and of the simulator), with the machine quiet: some minutes, 2.2 GB of memory.
criterion: setup
	set -o pipefail; $(CARGO) bench --workspace --bench '*' 2>&1 | grep -E '^(nomad|sim|workload)/|time:|thrpt:|^error'

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) run -q -p xtask -- check-deps

clean:
	$(CARGO) clean
	rm -rf results
