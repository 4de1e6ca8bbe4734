# "make" lists the targets. Everything works as root on a fresh Debian 12 with Go, git and make.

# With the same flags everywhere a package is compiled once for what is installed, for the tests that start it, and for vet.
export GOFLAGS += -tags=libvirt_dlopen -buildvcs=false -trimpath
export CGO_ENABLED = 1

# By default each process with the race detector sleeps a second before it exits, and tests start hundreds.
export GORACE = atexit_sleep_ms=10

# The date is the commit's, so that a commit always builds the same binary. Without git the version is "unknown".
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT     := $(shell git rev-parse HEAD 2>/dev/null)
DATE       := $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS     = -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
FUZZTIME    = 30s

# Most tests wait for peers and timers, so more of them run at a time than there are processors; emulated machines compute. What go vet
# finds, make lint reports.
PARALLEL       = -vet=off -parallel 4
PARALLEL_BOOTS = -vet=off -parallel 3

# A test that fails is run once more, alone, if few failed and none of them by a data race: a test that then passes is listed as flaky, and is
# to be fixed, but a machine that was busy for a moment makes no build red.
GOTEST = mkdir -p $(CURDIR)/bin/flaky; $(CURDIR)/bin/gotestsum --format standard-quiet --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures 5 \
	--rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report $(CURDIR)/bin/flaky/$@

# What runs programs, the daemon above all, is never taken from the test cache, which does not know them.
BOOTS    = ./test/e2e/... ./test/support/qemu/...
PROGRAMS = ./test/interop $$(go list ./cmd/... ./test/... | grep -v -e /test/e2e -e /test/support/qemu)
UNITS    = ./virt ./lbproxy ./internal/daemon $$(go list ./... | grep -v -e /cmd/ -e /test/) # what takes longest begins first

.PHONY: help
help: ## print this
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: build
build: toolchain assets ## bin/bootlab
	go build -ldflags "$(LDFLAGS)" -o bin/bootlab ./cmd/bootlab

PREFIX = /usr/local

.PHONY: install
install: ## bin/bootlab to PREFIX/bin, and the systemd unit; build first, as yourself
	install -D -m 755 bin/bootlab $(DESTDIR)$(PREFIX)/bin/bootlab
	install -D -m 644 configs/bootlab.service $(DESTDIR)/etc/systemd/system/bootlab.service
	sed -i 's#/usr/local/bin/#$(PREFIX)/bin/#' $(DESTDIR)/etc/systemd/system/bootlab.service

.PHONY: assets
assets: toolchain ## the network boot programs that are embedded
	@cd internal/firmware && go run fetch.go

.PHONY: toolchain
toolchain: ## the C compiler that the libvirt binding is built with
	@test/deps.sh build

.PHONY: deps
deps: ## Debian's packages that tests need, and the modules of programs that they build where there is no network
	@test/deps.sh test
	@go list -C test/conformance -deps tool >/dev/null
	@GOFLAGS= go list -C test/redfish -deps . >/dev/null

.PHONY: test-fast
test-fast: assets ## the tests that need neither root nor other programs: under a minute with warm caches
	go test -short -vet=off -parallel 16 -timeout 10m ./...

# -timeout only ends what hangs. Tests of packages and of test/conformance mostly wait, so they run side by side, once what they share is
# compiled. What boots real machines comes last, and alone: emulation takes every core.
.PHONY: test
test: deps assets bin/gotestsum ## every test, with the race detector, real boots included: some fifteen minutes on two cores
	@rc=0; export BOOTLAB_REQUIRE=all; rm -rf bin/flaky; \
	go build -race ./... || exit 1; \
	$(MAKE) --no-print-directory --keep-going --jobs=2 test-units test-conformance test-bench || rc=1; \
	$(MAKE) --no-print-directory test-programs || rc=1; \
	$(MAKE) --no-print-directory test-boots || rc=1; \
	flaky=$$(cat bin/flaky/* 2>/dev/null); [ -z "$$flaky" ] || printf 'failed and were run again:\n%s\n' "$$flaky"; \
	exit $$rc

.PHONY: test-units
test-units:
	$(GOTEST) --packages "$(UNITS)" -- -race -p 3 $(PARALLEL) -timeout 30m

.PHONY: test-programs
test-programs:
	$(GOTEST) --packages "$(PROGRAMS)" -- -race $(PARALLEL) -count=1 -timeout 30m

.PHONY: test-boots
test-boots:
	$(GOTEST) --packages "$(BOOTS)" -- -race $(PARALLEL_BOOTS) -count=1 -timeout 60m -p 1

.PHONY: test-conformance
test-conformance:
	cd test/conformance; $(GOTEST) --packages ./... -- -race $(PARALLEL) -count=1 -timeout 30m

.PHONY: test-bench
test-bench:
	cd bench; $(GOTEST) --packages ./... -- -race $(PARALLEL) -timeout 30m

bin/gotestsum: test/tools/go.mod
	go build -C test/tools -o ../../bin/gotestsum gotest.tools/gotestsum

.PHONY: test-long
test-long: e2e e2e-install cluster stress fuzz soak reproducible ## every boot, whole installations, every test under stress and a CPU quota, fuzzing, kills and power cuts: hours

.PHONY: cluster
cluster: deps assets ## a cluster of real parts, three etcd and Kubernetes' API servers, brought up from one lab file: some ten minutes, most for the build
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -count=1 -timeout 1h -v -run 'TestRealCluster' ./test/interop

.PHONY: soak
soak: deps assets ## 10,000 kills of the store and of the daemon, 2,000 power cuts and damages, 10,000 tries of a neighbour, 100 dashboards, a libvirtd that freezes, ARM and TPMs: hours
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -count=1 -timeout 3h -v -run 'TestKill$$|TestPowerCuts|TestLoad|TestEveryDamage' \
		./internal/store/logfile ./internal/daemon ./dhcpd/leases
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -count=1 -timeout 3h -v -run 'TestNeighboursGetNothing|TestDashboardMemory|TestImportMemory|TestConnectionMemory' ./test/interop
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -count=1 -timeout 1h -v -run 'TestUpdatesBesideBIND|TestOneMistake|TestManyRules' ./dnsd ./internal/lab/load ./internal/lab/importer
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -count=1 -timeout 12h -v -run 'TestKilledDaemon$$' ./test/interop
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -count=1 -timeout 1h -v -run 'TestFrozenLibvirtd|TestVMHardware' ./virt ./test/e2e

.PHONY: reproducible
reproducible: assets ## two builds of the last commit, in different folders, have the same bytes: some minutes
	test/reproducible.sh

.PHONY: conformance
conformance: deps ## h2spec, grpc-go's interop client, WebSocket clients and Pebble against balancers in mode http: a minute
	go test -C test/conformance $(PARALLEL) -count=1 -timeout 30m -v ./...

PKG = $(UNITS) $(PROGRAMS) $(BOOTS)

.PHONY: stress
stress: deps assets ## PKG's tests as copies in parallel, then under a CPU quota: make stress PKG=./internal/content/mirror
	BOOTLAB_REQUIRE=all test/stress.sh $(PKG)

.PHONY: race
race: assets ## the tests that need no installed programs, with the race detector; others skip
	go test -race $(PARALLEL) -timeout 30m $(UNITS)

.PHONY: e2e
e2e: deps assets ## real machines boot from the real daemon, with more firmware than in make test
	BOOTLAB_REQUIRE=all BOOTLAB_LONG=1 go test -v -count=1 -timeout 60m -p 1 $(BOOTS)

.PHONY: e2e-install
e2e-install: deps assets ## Debian installs itself from its archive, through the cache, twice: an hour in emulation
	BOOTLAB_REQUIRE=all BOOTLAB_E2E_INSTALL=1 go test -v -count=1 -timeout 150m -parallel 1 -run 'Test(Preseed|Debootstrap|StandIn)Install$$' $(BOOTS)

.PHONY: lint
lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go vet -C bench ./...
	go vet -C test/conformance ./...
	go build -C test/tools -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	cd bench && ../bin/staticcheck ./...

.PHONY: vulncheck
vulncheck: ## known vulnerabilities that the code reaches; skips with the reason where the database cannot be reached
	@if test/vulncheck.sh probe; then \
		go build -C test/tools -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck && \
		test/vulncheck.sh bin/govulncheck -tags libvirt_dlopen ./...; \
	fi

.PHONY: sbom
sbom: build ## bin/bootlab.spdx.json, the modules and boot programs that bin/bootlab is made of
	go run ./test/sbom -version "$(VERSION)" -date "$(DATE)" bin/bootlab > bin/bootlab.spdx.json

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@FUZZTIME=$(FUZZTIME) test/fuzz.sh

.PHONY: golden
golden: assets ## rewrite the golden files; read the diff
	@test/golden.sh

# The benchmarks are a module of their own: what they need is not in the product.
.PHONY: bin/bench
bin/bench:
	go build -C bench -o ../bin/bench .

.PHONY: bench
bench: build bin/bench deps ## benchmarks beside the code, then bootlab beside the daemons that it replaces
	go test -run '^$$' -bench . -benchmem $(UNITS)
	bin/bench

.PHONY: bench-dhcp
bench-dhcp: build bin/bench deps ## DHCP beside Kea, ISC dhcpd and dnsmasq, in one run of a quarter of an hour
	bin/bench -only dhcp

.PHONY: bench-http
bench-http: build bin/bench deps ## HTTP beside nginx and plain net/http, then 500 machines that boot at once
	bin/bench -only http,storm

.PHONY: bench-dns
bench-dns: build bin/bench deps ## DNS beside Knot, dnsmasq and BIND, in one run of some ten minutes
	bin/bench -only dns -candidates bootlab,knot,dnsmasq,named

.PHONY: bench-lb
bench-lb: build bin/bench deps ## the load balancer beside HAProxy and nginx, in one run of some ten minutes
	bin/bench -only lb

.PHONY: bench-tftp
bench-tftp: build bin/bench deps ## TFTP beside dnsmasq, tftpd-hpa and atftpd, in one run of some ten minutes
	@test/deps.sh unpack
	bin/bench -only tftp

.PHONY: bench-boot
bench-boot: deps assets ## from iPXE's DISCOVER to its script, for every way to iPXE, with real firmware
	BOOTLAB_REQUIRE=all go test -run '^$$' -bench '^BenchmarkChain$$' -benchtime 5x ./test/e2e

.PHONY: demo
demo: build ## a machine installs itself over the network, live; cleans up after itself
	@test/deps.sh demo
	@go run ./test/demo

.PHONY: docs
docs: ## rewrite the pages that are generated
	go test ./internal/daemon -run MetricsPage -update
	go test ./internal/lab/load -run Doc -update

# What is not committed yet may differ, but not change.
# With the race detector, as make test: so each of these tests is built once.
.PHONY: generated
generated: assets ## pages and golden files are as docs and golden make them
	@before=$$(git diff HEAD | sha256sum); \
	GOFLAGS="$(GOFLAGS) -race" test/golden.sh || exit 1; \
	test "$$before" = "$$(git diff HEAD | sha256sum)" || { git diff --stat; echo "generated files differ: commit them" >&2; exit 1; }

.PHONY: check
check: lint vulncheck generated test ## all that CI runs

.PHONY: image
image: ## the container image
	docker build -t bootlab:$(VERSION) .

.PHONY: image-test
image-test: ## the container image, built by buildah without an engine, serves as a user with three capabilities, and with two (root, ten minutes)
	@test/deps.sh image
	test/image.sh

.PHONY: lab-up
lab-up: ## a bridge lab0 with 10.77.0.1/24 in the network namespace bootlab, for experiments
	ip netns add bootlab
	ip -n bootlab link set lo up
	ip -n bootlab link add lab0 type bridge stp_state 0 forward_delay 0
	ip -n bootlab addr add 10.77.0.1/24 dev lab0
	ip -n bootlab link set lab0 up
	@echo "ip netns exec bootlab bin/bootlab serve --lab FILE"

.PHONY: lab-down
lab-down: ## remove that bridge and its namespace
	-ip netns del bootlab

.PHONY: clean
clean: ## remove all that was built or fetched
	rm -rf bin .cache
	find internal/firmware/assets -type f ! -name README.md ! -name COPYING.GPLv2 -delete
	go clean -testcache
