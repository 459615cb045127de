# Everything here works on a machine that has Go, make, git and bash, and nothing else. `make help` lists the targets.

# The product needs generic methods, so the Go release is pinned; any go command from 1.21 on fetches it once.
export GOTOOLCHAIN = go1.27.3

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
MODULE := github.com/cairnstream/cairn

# Binaries of the tools and of the servers that tests start (scripts/tools.sh fills the folder).
CAIRN_TOOLS_BIN ?= $(CURDIR)/.tools/bin
export CAIRN_TOOLS_BIN
TOOL := $(CAIRN_TOOLS_BIN)

# Two build settings, so that the dependencies are compiled twice and not five times: STATIC for what is
# shipped, vetted, linted and driven from end to end, and the race detector for tests. The race detector needs
# a C compiler; without one the tests run without it, and say so.
STATIC := CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'
HAVE_CC := $(shell command -v "$$($(GO) env CC 2>/dev/null)" 2>/dev/null)
RACE ?= $(if $(HAVE_CC),-race)
TESTED := CGO_ENABLED=$(if $(RACE),1,0) GOFLAGS=-buildvcs=false
TEST_TIMEOUT ?= 20m
E2E_TIMEOUT ?= 20m
# Narrow a run: make test PKG=./job/... TESTFLAGS='-run Groups -v'
PKG ?= ./...
TESTFLAGS ?=
# Packages whose invariants are checked while they run in a build with this tag: a second run with it on.
CHECKED := $(patsubst %,./%/...,$(wildcard internal/invariant record task exchange))
# Packages some of whose tests are too slow for the race detector: another run without it.
UNRACED := ./statebackend/pebble

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: all
all: build test lint check-generate ## build, test, lint, check-generate

.PHONY: build
build: ## static binaries: bin/cairn, bin/jobmanager, bin/taskmanager
	@mkdir -p bin
	$(STATIC) $(GO) build -ldflags '-s -w -X $(MODULE)/cli.Version=$(VERSION)' -o bin/ ./cmd/cairn ./cmd/jobmanager ./cmd/taskmanager

.PHONY: vet
vet: ## go vet
	$(STATIC) $(GO) vet -tags e2e ./...

.PHONY: test
test: tools-servers vet ## go vet, then all tests with the race detector, fuzz seeds, layers, conformance against real servers
	@[ -n "$(RACE)" ] || echo "test: the race detector is OFF: no C compiler was found" >&2
	CAIRN_REQUIRE_SERVERS=1 $(TESTED) $(GO) test -vet=off $(RACE) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)
	CAIRN_REQUIRE_SERVERS=1 $(TESTED) $(GO) test -vet=off $(RACE) -timeout $(TEST_TIMEOUT) -tags cairndebug $(TESTFLAGS) $(CHECKED)
	$(if $(filter ./...,$(PKG)),$(STATIC) $(GO) test -vet=off -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(UNRACED))

.PHONY: test-short
test-short: ## tests without race detector and servers: the quick loop while writing
	$(STATIC) $(GO) test -short -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)

.PHONY: model
model: ## 10,000 random sequences on every state backend, in a folder in memory where the machine has one
	$(STATIC) $(GO) test -exec 'env TMPDIR=$(or $(wildcard /dev/shm),/tmp) GOTMPDIR=' -count=1 -v -timeout 60m -run '^TestModel$$' $(patsubst %,./statebackend/%,memory fs pebble) -rapid.checks $(or $(CHECKS),10000) $(TESTFLAGS)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s) each
	./scripts/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: e2e
e2e: tools-servers build ## whole clusters: real processes, real etcd, real S3 gateway, kill -9
	CAIRN_REQUIRE_SERVERS=1 CAIRN_BIN=$(CURDIR)/bin $(STATIC) $(GO) test -v -vet=off -tags e2e -count=1 -timeout $(E2E_TIMEOUT) $(TESTFLAGS) ./test/e2e/...

.PHONY: demo
demo: ## the guided job on real data: runs, loses a TaskManager, recovers, is rescaled, checks the answer
	@mkdir -p bin
	$(STATIC) $(GO) build -ldflags '-s -w -X $(MODULE)/cli.Version=$(VERSION)' -o bin/ ./cmd/cairn
	./bin/cairn demo $(DEMOFLAGS)

.PHONY: bench
bench: ## measure, print the table and compare with the bars; BENCHFLAGS passes flags
	$(STATIC) $(GO) run ./bench/bars $(BENCHFLAGS)

.PHONY: bench-state
bench-state: build tools-servers ## the state backends against their bars; FLINK_BENCH, the folder of the Flink harness, has Flink measured beside them
	$(STATIC) $(GO) run ./bench/bars -bars state -lenient
	$(STATIC) $(GO) run ./bench/trees $(if $(FLINK_BENCH),-flink "$(FLINK_BENCH)") $(BENCHFLAGS)

.PHONY: bench-verify
bench-verify: tools-servers ## how fast a checkpoint is verified, against what a directory and an S3 gateway deliver; BENCHFLAGS passes flags
	$(STATIC) $(GO) run ./bench/verify $(BENCHFLAGS)

.PHONY: bench-flink
bench-flink: build ## Nexmark on Flink and on Cairn in turn: FLINK_BENCH is the folder of Flink's side, BENCHFLAGS passes flags
	@[ -n "$(FLINK_BENCH)" ] || { echo "bench-flink: FLINK_BENCH is not set: make bench-flink FLINK_BENCH=DIR, the folder of the Flink harness with its run.sh" >&2; exit 2; }
	$(STATIC) $(GO) run ./bench/flink -harness "$(FLINK_BENCH)" -cairn bin/cairn $(BENCHFLAGS)

.PHONY: nexmark
nexmark: ## every query of the benchmark against the reference's answers, at every parallelism
	$(STATIC) $(GO) test -vet=off -timeout 30m ./bench/nexmark/... -full $(TESTFLAGS)

.PHONY: lint
lint: fmt-check lint-go lint-proto ## formatting, golangci-lint, buf lint, buf breaking

.PHONY: lint-go
lint-go: tools-lint ## golangci-lint
	$(STATIC) $(TOOL)/golangci-lint run --allow-parallel-runners --timeout 15m ./...

.PHONY: lint-proto
lint-proto: tools-proto ## buf lint, and buf breaking against the last release or the branch's origin
	$(TOOL)/buf lint
	$(TOOL)/buf format --diff --exit-code
	./scripts/proto-breaking.sh

.PHONY: fmt
fmt: ## format Go and proto files in place
	"$$($(GO) env GOROOT)/bin/gofmt" -w $$(./scripts/go-files.sh)
	if [ -x $(TOOL)/buf ]; then $(TOOL)/buf format --write; fi

.PHONY: fmt-check
fmt-check: ## fail, with the difference, when a Go file is not formatted
	@diff=$$("$$($(GO) env GOROOT)/bin/gofmt" -d $$(./scripts/go-files.sh)) && [ -z "$$diff" ] || \
	{ printf '%s\n' "$$diff"; echo "fmt-check: run make fmt" >&2; exit 1; }

.PHONY: generate
generate: tools-proto ## Go from the protos, beside them
	PATH=$(TOOL):$$PATH $(TOOL)/buf generate

.PHONY: check-generate
check-generate: tools-proto ## fail when the generated Go differs from what the protos give
	./scripts/check-generate.sh

.PHONY: tools tools-lint tools-proto tools-servers tools-test
tools: tools-servers tools-proto tools-lint ## what all other targets need, into .tools/bin
tools-lint: ## golangci-lint into .tools/bin (built once per machine)
	@./scripts/tools.sh lint
tools-proto: ## buf, protoc-gen-go, protoc-gen-go-grpc into .tools/bin
	@./scripts/tools.sh buf protogen
tools-servers: ## etcd and versitygw, which conformance and end-to-end tests start, into .tools/bin
	@./scripts/tools.sh etcd versitygw
tools-test: ## gotestsum and benchstat into .tools/bin
	@./scripts/tools.sh test

.PHONY: clean
clean: ## remove what the other targets made in this checkout (the cache of tools stays)
	rm -rf bin .tools demo-out
	find . -path ./.git -prune -o \( -name '*.test' -o -name '*.prof' \) -type f -exec rm -f {} +
