# rdmakv. Bare "make" prints this menu; nothing here needs more than Go, make,
# gcc and git, except that "make test" also uses tshark and boots a guest of the
# lab, where scripts/prepare can get what these need.

GO      ?= go
BIN     := bin
CACHE   := .cache
# How long each fuzz target runs: in make test, and in make fuzz.
FUZZ_SHORT ?= 1s
FUZZ_LONG  ?= 5m
# kill -9 cycles of make e2e; make nightly has KILLS=200.
KILLS_TEST ?= 12
# Keys of its test of many keys; make nightly has two million. At a quarter of them the index
# has the same load.
KEYS_TEST ?= 500000
# How many packages, or steps, run side by side: many of their tests wait more than
# they compute, and no deadline in them is for an idle machine.
SIDE_BY_SIDE ?= 3
export SIDE_BY_SIDE
# So many in make unit: three packages whose tests take minutes and mostly wait would keep all
# others from being compiled, and 1.3 of two cores busy.
UNIT_SIDE_BY_SIDE ?= 5
# Packages whose tests run under the race detector. The end-to-end tests start
# processes, in which it would see nothing. Examples and the seeds of fuzz targets are
# of one goroutine, mostly, and take minutes there: make unit runs them.
RACE_PKGS = $$($(GO) list ./... | grep -v -e /test/ -e /demo)
# What takes longest comes first, in make unit and make race: a step ends with its last package.
LONG = ./internal/server ./store ./client ./rdma/iwarp ./store/log ./membership ./rdma/sim ./store/internal/tables
# What make race leaves to make race-full: programs of the tests, of the lab, of measurements and
# of the comparison with others, which are in no node and no client.
NOT_SERVED = -e /bench -e /deploy -e /examples/ -e /lab -e /internal/chart -e /internal/house -e /internal/load -e /internal/perf -e /internal/teeth/

# The packages of which the points change a file (internal/teeth): in others vet sees no more with them.
WITH_POINTS = $$(grep -rl --include='*.go' '^//go:build.*points' . | xargs -n 1 dirname | sort -u)

.DEFAULT_GOAL := help
.PHONY: help build demo test test-all lab lab-shell lab-cluster lab-siw check lint unit race mutants e2e fuzz fuzz-short bench nightly cover clean tools prepare

help: ## print this menu
	@echo "rdmakv: a key-value store read by RDMA. Targets:"; echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo "Start with: make demo"

build: ## build bin/kvserver and bin/kvclient
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/ ./cmd/kvserver ./cmd/kvclient

.PHONY: image
image: ## an image of both programs (NAME=, rdmakv:latest): podman, docker or buildah must be there
	@scripts/image $(or $(NAME),rdmakv:latest)

demo: build ## real data in, read back one-sidedly, SIGKILL, read back again
	@$(GO) run ./demo -bin $(BIN)

check: ## the inner loop, at most 2.5 minutes with a warm cache: format, vet, short tests
	@scripts/gofmt
	$(GO) vet ./...
	$(GO) test -short -p 4 $$($(GO) list ./... | grep -v -e /test/ -e /bench/)

test: ## everything that CI runs, in about 40 minutes on two cores
	@scripts/steps prepare lint unit-rest race mutants+crash fuzz-short e2e+cluster-test+security+lab-self+linearizability+sim+sim-cluster+ycsb+tears lab-guest demo

test-all: ## test, and what takes longer: model, lab-cluster, lab-siw, nightly
	@scripts/steps test model lab-cluster lab-siw nightly

prepare: ## get what tests use beside Go, where this machine lets us
	@scripts/prepare

lint: tools ## gofmt, go vet, staticcheck; the mutants compile
	@scripts/gofmt
	$(GO) vet ./...
	$(GO) vet -tags points $(WITH_POINTS)
	$(GO) run ./internal/teeth/mutants -check
	$(CACHE)/staticcheck ./...

# make lint has run go vet over the tests too, so neither step does it again.
unit: ## go test, all packages but the end-to-end tests
	$(GO) test -vet=off -p $(UNIT_SIDE_BY_SIDE) $(LONG) ./bench/scale ./bench/compare $$($(GO) list ./... | grep -v /test/) ./test/crashfs

# Of those that make race runs, the packages and their directories.
RACED = $$($(GO) list -f '{{.Dir}} {{.ImportPath}}' $$(echo $(RACE_PKGS) | tr ' ' '\n' | grep -v $(NOT_SERVED)) | scripts/goroutines)

# What make test runs of make unit: some forty packages have no test that make race shortens or leaves
# out, so make test runs these under the race detector alone.
.PHONY: unit-rest
unit-rest:
	@mkdir -p $(CACHE)
	@$(GO) list -f '{{.Dir}} {{.ImportPath}}' $(RACED) | scripts/whole >$(CACHE)/whole
	$(GO) test -vet=off -p $(UNIT_SIDE_BY_SIDE) $$($(GO) list $(LONG) | grep -vxFf $(CACHE)/whole) ./bench/scale ./bench/compare \
		$$($(GO) list ./... | grep -v /test/ | grep -vxFf $(CACHE)/whole) ./test/crashfs

race: ## what a node or a client is made of under the race detector, shortened
	GORACE=atexit_sleep_ms=100 $(GO) test -race -vet=off -p $(SIDE_BY_SIDE) -short -run '^Test' -timeout 30m $(LONG) $(RACED)

mutants: ## break each rule, one at a time, and see its test fail (SECONDS=: again and again)
	@$(GO) run ./internal/teeth/mutants -seconds $(or $(SECONDS),0)

.PHONY: crash
crash: ## a crash and an error at every call of the disk, each seventh byte flipped (SECONDS=: every byte, random seeds more)
	@scripts/crash "$(or $(SECONDS),0)"

.PHONY: linearizability
linearizability: ## what clients see is one order: 200,000 operations (OPS=, SECONDS=) under kills, stops, cuts
	@scripts/linearizability "$(or $(OPS),0)" "$(or $(SECONDS),0)"

# Its two parts run side by side where make may (make -j, make test).
e2e: e2e-load e2e-rest ## real processes: kill -9, bad input, the command lines, many keys

# The tests that keep servers at work, which take half of the time.
E2E_LOAD = ^Test(Kill9|Warm|DiskFull|FullMemory|FullAgain|TwoMillionKeys)$$

.PHONY: e2e-load e2e-rest
e2e-load: build
	$(GO) test -count 1 -timeout 30m ./test/e2e -run '$(E2E_LOAD)' -bin $(CURDIR)/$(BIN) -kills $(KILLS_TEST) -keys $(KEYS_TEST)

e2e-rest: build
	$(GO) test -count 1 -timeout 30m ./test/e2e -skip '$(E2E_LOAD)' -bin $(CURDIR)/$(BIN)
	$(GO) test -count 1 -timeout 10m ./test/doctor -bin $(CURDIR)/$(BIN)
	$(GO) test -count 1 -timeout 20m ./test/outside

.PHONY: security
security: build ## attacks from outside: secrets, rkeys, altered messages, half-open connections
	$(GO) test -count 1 -timeout 10m ./test/security -bin $(CURDIR)/$(BIN)

.PHONY: cluster-test
cluster-test: build ## three nodes and two clients as separate hosts: kills, pauses, cuts, restarts
	$(GO) test -count 1 -timeout 5m ./test/cluster/hosts
	$(GO) test -count 1 -timeout 60m ./test/cluster -bin $(CURDIR)/$(BIN)

# The lab: virtual machines with RDMA devices made by software; see lab/doc.go.
# RDMAKV_CLUSTER=1 turns on the tests that boot several guests. Of the lab's own
# tests make lab runs those that say whether a guest is what the others rely on.

lab: lab-self lab-guest ## boot a guest with Soft-RoCE, run in it what verbs decide (lab/tests.list)

# lab-self waits more than it computes, so make test runs it beside others.
.PHONY: lab-self lab-guest
lab-self: build $(BIN)/lab
	@scripts/lab $(GO) test -count 1 -timeout 20m ./test/lab -run '^Test(Guest|Refused|Shell)$$' -bin $(CURDIR)/$(BIN)

lab-guest: build $(BIN)/lab
	@scripts/lab $(BIN)/lab test

.PHONY: lab-all
lab-all: build $(BIN)/lab ## all of it: the lab's own tests, the long list of lab/tests.list
	@scripts/lab $(GO) test -count 1 -timeout 20m ./test/lab -bin $(CURDIR)/$(BIN)
	@scripts/lab $(BIN)/lab test -all

lab-shell: build $(BIN)/lab ## a guest with Soft-RoCE and a node, and a terminal in it
	$(GO) build -o $(BIN)/examples/ ./examples/...
	@$(BIN)/lab shell -bin $(BIN)

lab-cluster: build $(BIN)/lab ## three guests on one Ethernet: a cluster, cuts, losses, kills
	@RDMAKV_CLUSTER=1 scripts/lab $(GO) test -count 1 -timeout 60m -run '^TestLab(Replicas)?$$' ./test/cluster
	@RDMAKV_CLUSTER=1 scripts/lab $(GO) test -count 1 -p 1 -timeout 60m $$($(GO) list ./test/lab ./test/roce)

lab-siw: build $(BIN)/lab ## build the kernel's soft-iWARP and run ours against it
	@scripts/lab $(BIN)/lab siw

.PHONY: lab-bench
lab-bench: ## gets and puts over Soft-RoCE in a guest, beside perftest and Redis: times, and instructions (ROUNDS=, N=, ROWS=, COUNT=only or no)
	@scripts/lab scripts/lab-bench

.PHONY: $(BIN)/lab
$(BIN)/lab:
	@mkdir -p $(BIN)
	$(GO) build -o $@ ./lab/cmd/lab

.PHONY: tears sim sim-cluster
tears: ## torn reads by force, none accepted: COUNT= (1 million), or for SECONDS=
	@out=$$(cd store/layout && $(GO) test -count 1 -timeout 24h -run 'TestForcedTears$$' \
		-tears.count "$(or $(COUNT),1000000)" -tears.seconds "$(or $(SECONDS),0)"); code=$$?; \
	echo "$$out" | grep -v -e '^PASS$$' -e '^ok '; exit $$code

sim: ## nodes and clients on the adversarial fabric, seed after seed for SECONDS= (40)
	@$(GO) run ./internal/teeth/mutants -points $(CACHE)/points.json
	@out=$$(cd test/sim && $(GO) test -overlay $(CURDIR)/$(CACHE)/points.json -tags points -count 1 -timeout 24h -run 'TestSeeds$$' -seconds "$(or $(SECONDS),40)"); code=$$?; \
	echo "$$out" | grep -v -e '^PASS$$' -e '^ok ' -e '^linear sim'; exit $$code

sim-cluster: ## five nodes with replicas and their clients in virtual time, seed after seed for SECONDS= (60), in JOBS= processes (1)
	@JOBS="$(or $(JOBS),1)" scripts/sim-cluster "$(or $(SECONDS),60)"

fuzz: ## every fuzz target for FUZZ_LONG (5m) each
	@scripts/fuzz $(FUZZ_LONG)

fuzz-short: ## every fuzz target for FUZZ_SHORT (1s) each
	@scripts/fuzz $(FUZZ_SHORT)

bench: build ## the benchmarks
	@scripts/bench $(BIN)

.PHONY: bench-compare
bench-compare: build ## rdmakv beside Redis, memcached, LMDB, etcd: docs/benchmarks.md and the table of README (ROUNDS=, ROWS=, ARGS=-quick)
	@ROUNDS="$(ROUNDS)" ROWS="$(ROWS)" ARGS="$(ARGS)" scripts/bench-compare $(BIN)

.PHONY: scale
scale: build ## what it costs as it grows: docs/scale.md, in about 12 minutes (BIG=1: also 50 M keys; ARGS=-keys 1M)
	@mkdir -p $(CACHE)
	$(GO) build -o $(CACHE)/scale-program ./bench/scale
	@$(CACHE)/scale-program -bin $(BIN) $(if $(BIG),-big) $(ARGS)

.PHONY: ycsb
ycsb: build ## go-ycsb's workloads a to f, by the binding in bench/ycsb, against a node; the client of etcd of bench-compare
	cd bench/ycsb && $(GO) vet ./... && $(GO) test -count 1 ./... -bin $(CURDIR)/$(BIN)
	cd bench/compare/etcd && $(GO) vet ./... && $(GO) test -count 1 ./...

.PHONY: model race-full
model: ## check the models of the rules with spin, each rule taken out once (SECONDS=: in part)
	@SECONDS_MAX=$(or $(SECONDS),0) model/run

race-full: ## the race detector, nothing shortened
	@$(GO) build -race ./...
	$(GO) test -race -p 1 -timeout 2h $(RACE_PKGS)

nightly: build ## all at length: linearizability, crashes, tears, mutants, models, kills, race, fuzzing
	@scripts/nightly

cover: ## coverage of the tests, as a table and .cache/cover.html
	@mkdir -p $(CACHE)
	$(GO) test -coverpkg ./... -coverprofile $(CACHE)/cover.out $$($(GO) list ./... | grep -v /test/)
	@$(GO) tool cover -html $(CACHE)/cover.out -o $(CACHE)/cover.html
	@$(GO) tool cover -func $(CACHE)/cover.out | tail -1

tools: $(CACHE)/staticcheck

# Linters live in a module of their own, pinned by tools/go.sum.
$(CACHE)/staticcheck: tools/go.mod tools/go.sum
	@mkdir -p $(CACHE)
	cd tools && $(GO) build -o ../$@ honnef.co/go/tools/cmd/staticcheck

clean: ## remove bin/ and .cache/
	rm -rf $(BIN) $(CACHE)
