# `make help` lists the targets. Programs from other repositories are built from pinned modules. They are stored in a
# cache outside of this repository: $MACHINIST_CACHE, by default $XDG_CACHE_HOME/machinist or ~/.cache/machinist.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GO ?= go
ARGS ?=
# Programs, control plane and tests are built with the default flags of Go, so that Go compiles shared packages only
# once.
BUILD := $(GO) run ./hack/build
# The modules of the workspace except the control plane, and their packages. The pattern ./... covers only one module.
MODULES := . ./api ./providers/azure ./providers/libvirt ./providers/openstack ./providers/vsphere
PACKAGES := ./... ./api/... ./providers/azure/... ./providers/libvirt/... ./providers/openstack/... ./providers/vsphere/...
# Packages in which goroutines share memory. With the race detector, their tests take three times as long.
RACE := ./internal/platform/process/... ./internal/machine ./internal/machine/cloud ./internal/platform/freshness ./internal/platform/queueing \
	./internal/platform/reachability ./internal/fleet/machineset ./internal/fleet/machinedeployment ./internal/health/healthcheck/... \
	./internal/health/... ./internal/fleet/disruption ./internal/install/installer ./internal/platform/tracing ./devel/child \
	./internal/cli/ui ./pkg/provider/app/... ./simcloud/...
# The command that runs tests. .ci/run replaces it with a program that also records the results.
GOTEST ?= $(GO) test
# gotestsum prints the output of tests while they run, and prints the output of failed tests again at the end.
GOTESTSUM := $(CURDIR)/hack/gotest.sh --format standard-verbose
# The tests run without vet, because make lint runs vet. Many tests only wait, so the number of packages that are tested
# at the same time is the number of processors plus one.
TESTFLAGS ?= -vet=off -timeout 30m -p $(shell echo $$(($$(nproc) + 1)))
# GOGC=400 saves a quarter of the processor time of compilers and tests. The programs that tests start have settings of
# their own.
test race: export GOGC := 400
e2e e2e-install e2e-openstack e2e-vm e2e-ui: export CONTROLPLANE_GOGC := 400
# Each process of a control plane uses only one thread, because several control planes run in parallel.
test race e2e: export CONTROLPLANE_GOMAXPROCS := 1
# With this variable, client-go panics if an object in a cache is changed.
race e2e: export KUBE_CACHE_MUTATION_DETECTOR = true
# This is a number of runs and not a duration, because Go sometimes reports a failure when a duration ends ("context
# deadline exceeded").
FUZZTIME ?= 50000x
DURATION ?= 10m
HOURS ?= 1

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# Checks the version of Go. If the go command is older than go.mod requires and cannot download a newer version, its own
# error message is hard to understand.
.PHONY: go
go:
	@need=$$(sed -n 's/^go //p' go.mod); have=$$(GOTOOLCHAIN=local $(GO) env GOVERSION 2>/dev/null | sed 's/^go//'); \
	if [ -z "$$have" ]; then echo "Go $$need or newer is needed, but there is no go command in PATH: install Go and run this command again." >&2; exit 1; fi; \
	if [ "$$(printf '%s\n' "$$need" "$$have" | sort -V | head -1)" != "$$need" ] && ! $(GO) version 2>/dev/null | grep -q "go$$need"; then \
		echo "Go $$need or newer is needed, but this is Go $$have: install a newer version and run this command again." >&2; exit 1; fi

.PHONY: build
build: go ## Build all programs into bin/
	$(BUILD) programs ./cmd/... ./providers/azure/cmd/... ./providers/libvirt/cmd/... ./providers/openstack/cmd/... ./providers/vsphere/cmd/...

.PHONY: notices
notices: ## Write the license notices of all modules in the programs to bin/THIRD_PARTY_NOTICES
	@mkdir -p bin
	cd hack/tools && GOWORK=off $(GO) run ./notices -folders ../..,../../providers/azure,../../providers/libvirt,../../providers/openstack,../../providers/vsphere >../../bin/THIRD_PARTY_NOTICES

# The builder of the images is a separate module, so that the programs do not depend on the dependencies of the builder.
.PHONY: images
images: ## Build an image of each program into dist/images; VERSION=v1.2.3, PLATFORMS=linux/amd64, PUSH=registry/prefix, ARGS=--again
	cd hack/images && GOWORK=off $(GO) build -o ../../bin/images .
	bin/images build --root . --version "$(VERSION)" --platforms "$(PLATFORMS)" --push "$(PUSH)" $(ARGS)

.PHONY: release-rehearsal
release-rehearsal: go ## Build, publish, sign and verify a release of the last commit, with a registry on this machine
	$$(hack/tool.sh release .) rehearse

.PHONY: controlplane
controlplane: go ## Download or build etcd, kube-apiserver and the other programs of a control plane into the cache; CONTROLPLANE=build|download|auto
	$(BUILD) controlplane

.PHONY: guest
guest: ## Build the disk image from which virtual machines of the demo and of tests boot; needs Debian 12 and root
	hack/guest/build.sh

# The programs that a demo starts. Only the provider of the demo's cloud is built, because each of the other providers
# needs the SDK of another cloud.
DEMO_PROVIDER = $(or $(lastword $(filter azure-fake libvirt openstack vsphere-sim,$(subst =, ,$(ARGS)))),sim)
DEMO_PROGRAMS_sim := ./cmd/machinist-provider-sim ./cmd/simcloud
DEMO_PROGRAMS_azure-fake := $(addprefix ./providers/azure/cmd/,machinist-demo-azure-fake machinist-provider-azure fakeazure)
DEMO_PROGRAMS_libvirt := $(addprefix ./providers/libvirt/cmd/,machinist-demo-libvirt machinist-provider-libvirt)
DEMO_PROGRAMS_openstack := $(addprefix ./providers/openstack/cmd/,machinist-demo-openstack machinist-provider-openstack)
DEMO_PROGRAMS_vsphere-sim := $(addprefix ./providers/vsphere/cmd/,machinist-demo-vsphere-sim machinist-provider-vsphere fakevsphere)

# The tour does not need kubectl. Only scenarios, and users who enter commands, need it.
DEMO_CONTROLPLANE := $(if $(findstring --scenario,$(ARGS)),,$(if $(findstring --once,$(ARGS)),etcd kube-apiserver kube-controller-manager kube-scheduler))

.PHONY: demo
demo: go ## Run everything on this machine with a sample fleet; ARGS=--once runs a tour and exits
	@echo "This demo starts a Kubernetes control plane, a cloud and Machinist on this machine."
	@echo "The first time, it downloads or builds the programs. docs/demo.md describes how long that takes."
	$(BUILD) controlplane $(DEMO_CONTROLPLANE)
	$(if $(filter libvirt,$(DEMO_PROVIDER)),hack/guest/build.sh)
	$(BUILD) programs ./cmd/machinist ./cmd/machinist-demo ./cmd/machinist-manager $(DEMO_PROGRAMS_$(DEMO_PROVIDER))
	bin/machinist-demo $(ARGS)

.PHONY: test
test: controlplane ## Run unit tests, and tests against an API server
	CLOUD_INIT_SCHEMA=$$(hack/cloudinit.sh) $(GOTEST) $(TESTFLAGS) $(PACKAGES)
	@# Fails if `go test` without flags would compile dependencies again. Tested packages may be missing from the cache.
	@stale=$$($(GO) list -test -deps -f '{{if and .Stale .DepOnly}}{{.ImportPath}}{{end}}' ./internal/...); \
	[ -z "$$stale" ] || { echo "go test ./internal/... would compile these packages again, because make test used other flags:"; echo "$$stale"; exit 1; }

.PHONY: race
race: controlplane ## Run the tests of packages in which goroutines share memory, with the race detector
	CGO_ENABLED=1 $(GOTEST) $(TESTFLAGS) -race $(RACE)

.PHONY: test-tools
test-tools: ## Test the tools that are separate Go modules
	cd hack/images && GOWORK=off $(GO) vet ./... && GOWORK=off $(GOTEST) -vet=off ./...
	cd hack/release && GOWORK=off $(GO) vet ./... && GOWORK=off $(GOTEST) -vet=off ./...

.PHONY: test-outside
test-outside: ## Build a provider in a separate repository, as docs/provider-guide.md describes
	$(GOTEST) -tags outside -vet=off -run Outside ./examples/provider

# The scenarios that run for every change. They cover properties that only real processes show: a join, the cloud
# controller of another system, kubectl, the end of a leader, webhooks, the number of writes, and the demo.
E2E_SHORT := -run '^(TestNodesJoinThroughUserDataTokenAndCSR|TestCloudControllerWritesOtherProviderID|TestKubectlCommandsWork|TestLeaderEndsWhenLeaseIsStolen|TestNoAdmissionRequestIsLost|TestMigrationByCommandLine|TestWritesPerMachineStayWithinBudget|TestDemoTourSucceeds)$$'

.PHONY: e2e
e2e: controlplane build ## Run long scenarios with the real programs: crashes, two leaders, tours; SHORT=1 runs a few, FULL=1 all scenarios
	$(if $(FULL),for package in core bootstrap/kubeadm; do hack/tool.sh clusterapi sigs.k8s.io/cluster-api/$$package >/dev/null || exit; done)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -parallel $(if $(FULL),3 -timeout 90m,$(if $(SHORT),3,5) -timeout 60m) \
		$(if $(SHORT),$(E2E_SHORT)) ./test/e2e
	$(if $(SHORT),,FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 2 -timeout $(if $(FULL),60m,20m) ./providers/azure/e2e ./providers/vsphere/e2e ./test/chaos \
		$(if $(FULL),./test/controllermanager/fidelity))

# The images are built with the version that the charts require, and only for the platform of this machine.
.PHONY: e2e-install
e2e-install: ## Install with Helm into a kubeadm cluster, from images in a registry; needs root; FULL=1 runs all tests
	hack/node/build.sh
	$$(hack/tool.sh images .) build --root . --out dist/e2e-images --platforms linux/$$($(GO) env GOARCH) \
		--version $$(sed -n 's/^appVersion: *//p' charts/machinist/Chart.yaml) \
		--programs machinist-manager,machinist-operator,machinist-provider-sim,simcloud
	$(if $(FULL),HELM3=$$(hack/tool.sh helm3 helm.sh/helm/v3/cmd/helm)) HELM4=$$(hack/tool.sh helm4 helm.sh/helm/v4/cmd/helm) \
		INSTALL_IMAGES=$(CURDIR)/dist/e2e-images FULL=$(FULL) \
		$(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 1 -timeout $(if $(FULL),90m,15m) ./test/realnode ./test/realnode/fidelity ./test/install

.PHONY: kubeadm-cluster
kubeadm-cluster: ## Create a cluster with kubeadm in namespaces of this machine, and keep it until interrupted; needs root; ARGS="-layout dist/images"
	$(GO) build -o bin/kubeadm-cluster ./test/realnode/kubeadm
	bin/kubeadm-cluster -check $(ARGS)
	hack/node/build.sh
	bin/kubeadm-cluster $(ARGS)

# The packages are tested one at a time, because each of them starts an OpenStack.
.PHONY: e2e-openstack
e2e-openstack: controlplane build ## Test fleets in a real OpenStack with fake hypervisors; needs Debian 12; FULL=1 runs all tests
	$(if $(FULL),$(GOTESTSUM) -- -tags openstack -vet=off -count=1 -timeout 30m ./hack/openstack)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 1 -timeout $(if $(FULL),120m,20m) ./providers/openstack/guide ./providers/openstack/e2e

# The virtual machines boot one at a time, because each of them needs a processor. The other test suite runs in
# parallel, because it mostly waits.
.PHONY: e2e-vm
e2e-vm: controlplane build guest ## Test virtual machines with libvirt, QEMU and a real kubelet; needs Debian 12 and root; FULL=1 runs all tests
	$(BUILD) controlplane kubelet@v1.37.3
	$(if $(FULL),$(GOTESTSUM) -- -tags libvirt -vet=off -count=1 -timeout 10m ./hack/libvirt)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 2 -timeout $(if $(FULL),120m,40m) ./providers/libvirt/vm ./providers/libvirt/e2e

# The tests are a separate module, because only they need the library that controls the browser.
UITEST = cd test/ui && GOWORK=off $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -timeout 10m

.PHONY: e2e-ui
e2e-ui: controlplane build ## Test machinist ui in a browser (Chromium) with the simulated cloud
	hack/chromium.sh >/dev/null
	$(UITEST) .

.PHONY: screenshots
screenshots: controlplane build ## Update the pictures in docs/ui.md
	mkdir -p docs/ui
	UI_PICTURES=$(CURDIR)/docs/ui $(UITEST) -run Pictures .

.PHONY: chaos
chaos: controlplane build ## Disturb the real processes for DURATION while simulated users change fleets, and check the results; ARGS="--seed 7" selects the disturbances
	$(GO) run ./test/chaos --duration $(DURATION) $(ARGS)

# By default, the first seed is derived from the hash of the commit, so that each commit runs the simulation with other
# seeds.
SIMULATE = $(GO) run ./test/simulate --seed $(or $(SEED),$$(printf %d 0x$$(git rev-parse --short=8 HEAD || echo 1)))

.PHONY: simulate
simulate: ## Run the deterministic simulation (4 minutes): semantics of clouds, samples of plans and corruptions, random runs; SEED=1 selects the runs
	$(SIMULATE) --quick $(ARGS)

.PHONY: simulate-full
simulate-full: ## Run a longer simulation, which also combines two faults or two semantics (30 minutes)
	$(SIMULATE) --full $(ARGS)

.PHONY: mutants
mutants: ## Check that the simulation finds bugs: plant bugs in the controllers, one at a time
	$(GO) run ./test/simulate mutants $(ARGS)

.PHONY: generated-mutants
generated-mutants: ## Check that unit tests and simulation find generated bugs: COUNT bugs in fleet, machine and health; SEED=1 selects them
	$(GO) run ./test/mutation --seed $(or $(SEED),0) --count $(or $(COUNT),300) $(ARGS)

.PHONY: soak
soak: ## Run every scenario of the simulation with new seeds for HOURS (1), in the background
	$(GO) run ./test/simulate soak --hours $(HOURS) $(ARGS)

.PHONY: smoke
smoke: go ## Run the tour with another version of Kubernetes: KUBERNETES=v1.34.4
	KUBERNETES=$(KUBERNETES) $(BUILD) controlplane
	$(BUILD) programs ./cmd/machinist-demo ./cmd/machinist-manager $(DEMO_PROGRAMS_sim)
	assets=$${MACHINIST_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/machinist}/controlplane/$(KUBERNETES) && \
		KUBEBUILDER_ASSETS=$$assets bin/machinist-demo --once && KUBEBUILDER_ASSETS=$$assets bin/machinist-demo --scenario drain

.PHONY: nightly
nightly: ## Run the targets that are too slow to run for every change; PART=1/3 runs a third; dist/nightly collects the results of all parts
	$(GO) run ./hack/ci -targets .ci/nightly -limit 120 -part $(or $(PART),1/1) -results dist/nightly

.PHONY: bench
bench: controlplane ## Measure the costs of fleets: API writes, time, CPU, memory; ARGS='--machines 1000'
	$(GO) run ./bench $(ARGS)

.PHONY: generate
generate: ## Generate CRDs, deepcopy functions, the charts' copies of files and reference documentation
	hack/generate.sh

.PHONY: verify
verify: ## Fail if generated files are outdated, a rule has no test, or modules require different versions
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "not formatted by gofmt: $$unformatted"; exit 1; }
	hack/modules.sh
	$(GO) run ./hack/rules
	hack/generate.sh --verify

.PHONY: words
words: ## Count the words of the user documentation, file by file; fails above LIMIT (50000)
	hack/words.sh $(LIMIT)

.PHONY: charts
charts: controlplane ## Lint the charts with Helm, and validate the rendered objects against the schemas of an API server
	$(GOTEST) -tags charts -vet=off -run Charts ./test/api

.PHONY: lint
lint: ## Run golangci-lint, built from its pinned module
	hack/lint.sh

.PHONY: vulncheck
vulncheck: ## Run govulncheck, built from its pinned module; GOVULNDB names a vulnerability database that is required
	hack/vulncheck.sh

.PHONY: fuzz
fuzz: ## Run every fuzz target FUZZTIME (50000x) times each
	@for file in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    echo "== $${file%/*} $$target"; \
	    (cd $${file%/*} && $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) || exit 1; \
	  done; done

.PHONY: clean
clean: ## Remove bin/ and dist/, but not the cache
	rm -rf bin dist
