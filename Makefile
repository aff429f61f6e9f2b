# Every target works from a fresh clone on Debian 12 as root; packages are installed by setup.
SHELL := /bin/bash
CARGO ?= cargo
LAB := target/release/terrace-lab
MACHINE ?= machines/cxl-2tier.toml

# Where `make install` puts things; DESTDIR goes in front, as packagers expect.
PREFIX ?= /usr/local

.PHONY: all setup build built-for-tests install uninstall kernel demo bench test test-quick fuzz test-lab figures tables claims claims-doc validate validate-again criterion lint clean
all: build

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace

# What is built; run as yourself `make build` first, then as root `make install`.
install:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/terrace $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/terrace/machines
	install -m 755 target/release/terrace $(DESTDIR)$(PREFIX)/bin/terrace
	install -m 644 target/release/libterrace.so $(DESTDIR)$(PREFIX)/lib/terrace/libterrace.so
	install -m 644 machines/*.toml $(DESTDIR)$(PREFIX)/share/terrace/machines/
	target/release/terrace man $(DESTDIR)$(PREFIX)/share/man/man1

uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/bin/terrace $(DESTDIR)$(PREFIX)/lib/terrace $(DESTDIR)$(PREFIX)/share/terrace
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/terrace.1 $(DESTDIR)$(PREFIX)/share/man/man1/terrace-*.1

# The guest's kernel: Debian's package, unpacked under target/, not installed.
kernel: build
	@$(LAB) kernel fetch

demo: build kernel
	@mkdir -p results
	$(LAB) compare --machine $(MACHINE) --workloads nomad-small-read:full,redis:slow \
	  --systems none,kernel,adaptive,oracle --seconds 30 --rounds 2 --within 13m \
	  --json results/demo.json --html results/demo.html

bench: build kernel
	@mkdir -p results
	$(LAB) compare --machine $(MACHINE) \
	  --workloads nomad-small-read,nomad-small-write,nomad-medium-read,nomad-medium-write,nomad-large-read,nomad-large-write,gups,gups:full,redis \
	  --systems none,kernel,nomad,oracle --json results/bench.json --html results/bench.html

# Programs and tests in one build: by itself each would build the same libraries with other features.
built-for-tests: setup
	$(CARGO) build --release --workspace --lib --bins --tests --examples
	@$(LAB) kernel fetch

# All that needs no emulated machine, and a few that do.
test: built-for-tests
	@scripts/test

# The other tests that boot the emulated machine, about half an hour.
test-lab: built-for-tests
	@scripts/test lab

# Unit and property tests of what is pure (default-members): the daily round, on any Linux without clang,
# QEMU or root.
test-quick:
	$(CARGO) test --release

# Every decoder of what others write, by inputs that are nearly right: ten million of them, some minutes.
FUZZ_CASES ?= 1050000
fuzz: setup
	set -o pipefail; PROPTEST_CASES=$(FUZZ_CASES) $(CARGO) test --release --no-fail-fast \
	  -p terrace-proto -p terrace-bpf -p terrace-sys -p terrace-api --lib fuzz_ 2>&1 \
	  | awk '/^test .*fuzz_.* ok$$/ { done++ } /^test |panicked|minimal failing/ { print } \
	    END { print done * $(FUZZ_CASES) " inputs decoded or refused, by " done + 0 " tests" }'

# What is published of the figures, written anew: docs/status.md, docs/status.schema.json.
figures: setup
	TERRACE_WRITE_DOCS=1 $(CARGO) test --release -p terrace-api -p terrace-cli --test schema --test figures

# The tables of docs/ that are simulated (docs/tables), written anew from their runs, which docs/results keeps. Those of the emulated
# machine take half an hour each: scripts/doc-tables --lab --only TABLE.
tables: build
	scripts/doc-tables

# The papers' claims in the simulator; fails when one that is marked held does not hold.
claims: setup
	$(CARGO) build --release -p terrace-cli
	target/release/terrace claims

claims-doc: setup
	$(CARGO) build --release -p terrace-cli
	@mkdir -p results
	{ sed '/^<!-- results/q' docs/claims.md; echo; target/release/terrace claims --markdown; } > results/claims.md
	mv results/claims.md docs/claims.md

# The simulator against the emulated machine: 72 runs of half a minute, kept one by one; fails where they disagree.
VALIDATION := docs/results/validation.json
validate: build kernel
	$(LAB) validate --systems none,kernel,nomad,hemem,adaptive,oracle --rounds 2 \
	  --json $(VALIDATION) --document docs/validation.md

# The same from the lab's figures that are kept there: simulated again, table written again.
validate-again: build
	$(LAB) validate --lab-from $(VALIDATION) --json $(VALIDATION) --document docs/validation.md

# Speed of the policy (and of the simulator), with the machine quiet: some minutes, 2.2 GB of memory.
criterion: setup
	set -o pipefail; $(CARGO) bench --workspace --bench '*' 2>&1 | grep -E '^(nomad|sim|workload)/|time:|thrpt:|^error'

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) run -q --release -p xtask -- check-deps
	scripts/doc-tables --check

clean:
	$(CARGO) clean
	rm -rf results
