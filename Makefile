# `make help` lists the targets. Everything that is not Go source is built from pinned modules into a cache outside the
# tree: $MACHINIST_CACHE, by default $XDG_CACHE_HOME/machinist or ~/.cache/machinist.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GO ?= go
ARGS ?=
# Programs, control plane and tests are built with Go's default flags, so that what they share is compiled once.
BUILD := $(GO) run ./hack/build
# Packages of every module of the workspace but the control plane's: ./... covers only the module it is called in.
MODULES := . ./api ./providers/azure ./providers/libvirt ./providers/openstack
PACKAGES := ./... ./api/... ./providers/azure/... ./providers/libvirt/... ./providers/openstack/...
# Packages in which goroutines share memory. The race detector makes their tests take three times as long.
RACE := ./internal/platform/process/... ./internal/machine ./internal/machine/cloud ./internal/platform/freshness ./internal/platform/queueing \
	./internal/platform/reachability ./internal/fleet/machineset ./internal/fleet/machinedeployment ./internal/health/healthcheck/... \
	./internal/health/... ./internal/fleet/disruption ./internal/install/installer ./internal/platform/tracing ./devel/child \
	./internal/cli/ui ./pkg/provider/app/... ./simcloud/...
# What runs tests: .ci/run sets it to a program that also records them.
GOTEST ?= $(GO) test
# Prints what tests print while they run, and all that the failed ones printed again at the end.
GOTESTSUM := $(CURDIR)/hack/gotest.sh --format standard-verbose
# Without vet: make lint runs all of it. One package more at a time than there are processors, because many tests wait.
TESTFLAGS ?= -vet=off -timeout 30m -p $(shell echo $$(($$(nproc) + 1)))
# A compiler and a test that collect garbage seldom need a quarter less of the processor. The programs that tests start
# keep the pace that they choose.
test race: export GOGC := 400
e2e e2e-install e2e-openstack e2e-vm e2e-ui: export CONTROLPLANE_GOGC := 400
# Where control planes run beside each other, each of their processes has one thread.
test race e2e: export CONTROLPLANE_GOMAXPROCS := 1
# A change of an object that a cache holds panics.
race e2e: export KUBE_CACHE_MUTATION_DETECTOR = true
# A number of runs and not a time: when a time ends, Go sometimes reports that as a failure ("context deadline exceeded").
FUZZTIME ?= 50000x
DURATION ?= 10m
HOURS ?= 1

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# The go command prints a riddle where it is too old for go.mod and cannot download a newer version.
.PHONY: go
go:
	@need=$$(sed -n 's/^go //p' go.mod); have=$$(GOTOOLCHAIN=local $(GO) env GOVERSION 2>/dev/null | sed 's/^go//'); \
	if [ -z "$$have" ]; then echo "Go $$need or newer is needed, and there is no go command in PATH: install it and run this again." >&2; exit 1; fi; \
	if [ "$$(printf '%s\n' "$$need" "$$have" | sort -V | head -1)" != "$$need" ] && ! $(GO) version 2>/dev/null | grep -q "go$$need"; then \
		echo "Go $$need or newer is needed, and this is $$have: install a newer one and run this again." >&2; exit 1; fi

.PHONY: build
build: go ## Build all programs into bin/
	$(BUILD) programs ./cmd/... ./providers/azure/cmd/... ./providers/libvirt/cmd/... ./providers/openstack/cmd/...

.PHONY: notices
notices: ## Write the licence notices of what the programs contain to bin/THIRD_PARTY_NOTICES
	@mkdir -p bin
	cd hack/tools && GOWORK=off $(GO) run ./notices -folders ../..,../../providers/azure,../../providers/libvirt,../../providers/openstack >../../bin/THIRD_PARTY_NOTICES

# Built by a module of its own, so that its dependencies are not those of the programs.
.PHONY: images
images: ## Build an image of each program into dist/images; VERSION=v1.2.3, PLATFORMS=linux/amd64, PUSH=registry/prefix, ARGS=--again
	cd hack/images && GOWORK=off $(GO) build -o ../../bin/images .
	bin/images build --root . --version "$(VERSION)" --platforms "$(PLATFORMS)" --push "$(PUSH)" $(ARGS)

.PHONY: controlplane
controlplane: go ## Download or build etcd, kube-apiserver and the rest of a control plane into the cache; CONTROLPLANE=build|download|auto
	$(BUILD) controlplane

.PHONY: guest
guest: ## Build the disk image that virtual machines of the demo and of tests boot; needs Debian 12 and root
	hack/guest/build.sh

# The programs that a demo starts: of one provider only, because the others bring the SDK of a cloud each.
DEMO_PROVIDER = $(or $(lastword $(filter azure-fake libvirt openstack,$(subst =, ,$(ARGS)))),sim)
DEMO_PROGRAMS_sim := ./cmd/machinist-provider-sim ./cmd/simcloud
DEMO_PROGRAMS_azure-fake := $(addprefix ./providers/azure/cmd/,machinist-demo-azure-fake machinist-provider-azure fakeazure)
DEMO_PROGRAMS_libvirt := $(addprefix ./providers/libvirt/cmd/,machinist-demo-libvirt machinist-provider-libvirt)
DEMO_PROGRAMS_openstack := $(addprefix ./providers/openstack/cmd/,machinist-demo-openstack machinist-provider-openstack)

# The tour calls no kubectl; the scenarios and people who use the demo do.
DEMO_CONTROLPLANE := $(if $(findstring --scenario,$(ARGS)),,$(if $(findstring --once,$(ARGS)),etcd kube-apiserver kube-controller-manager kube-scheduler))

.PHONY: demo
demo: go ## Run everything on this machine with a sample fleet; ARGS=--once runs a tour and ends
	@echo "This demo starts a Kubernetes control plane, a cloud, Machinist and a small fleet on this machine."
	@echo "The first time, it downloads or builds the programs: see README.md for how long that takes."
	$(BUILD) controlplane $(DEMO_CONTROLPLANE)
	$(if $(filter libvirt,$(DEMO_PROVIDER)),hack/guest/build.sh)
	$(BUILD) programs ./cmd/machinist ./cmd/machinist-demo ./cmd/machinist-manager $(DEMO_PROGRAMS_$(DEMO_PROVIDER))
	bin/machinist-demo $(ARGS)

.PHONY: test
test: controlplane ## Unit tests, and tests against an API server
	CLOUD_INIT_SCHEMA=$$(hack/cloudinit.sh) $(GOTEST) $(TESTFLAGS) $(PACKAGES)
	@# Fails if plain `go test` would compile dependencies again. The tested packages themselves may be missing from the cache.
	@stale=$$($(GO) list -test -deps -f '{{if and .Stale .DepOnly}}{{.ImportPath}}{{end}}' ./internal/...); \
	[ -z "$$stale" ] || { echo "go test ./internal/... would compile packages again, so make test used other flags:"; echo "$$stale"; exit 1; }

.PHONY: race
race: controlplane ## Tests of the packages in which goroutines share memory, with the race detector
	CGO_ENABLED=1 $(GOTEST) $(TESTFLAGS) -race $(RACE)

.PHONY: test-tools
test-tools: ## Tests of the tools that are Go modules of their own
	cd hack/images && GOWORK=off $(GO) vet ./... && GOWORK=off $(GOTEST) -vet=off ./...

.PHONY: test-outside
test-outside: ## Build a provider in a repository of its own, as docs/provider-guide.md says
	$(GOTEST) -tags outside -vet=off -run Outside ./examples/provider

# One scenario for each thing that only processes show, for every change: a join, a foreign cloud controller, kubectl, a
# leader's end, webhooks, the number of writes, and the demo.
E2E_SHORT := -run '^(TestNodesJoinThroughUserDataTokenAndCSR|TestACloudControllerThatWritesAnotherProviderID|TestKubectl|TestALeaderWhoseLeaseIsStolenEnds|TestNoRequestForAdmissionIsLost|TestWritesPerMachineAreWithinTheBudget|TestTheDemoTour)$$'

.PHONY: e2e
e2e: controlplane build ## Long scenarios: the real binaries, crashes, two leaders, whole tours; SHORT=1 runs a few, FULL=1 all of it
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -parallel $(if $(FULL),3 -timeout 90m,$(if $(SHORT),3,5) -timeout 60m) \
		$(if $(SHORT),$(E2E_SHORT)) ./test/e2e
	$(if $(SHORT),,FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 2 -timeout $(if $(FULL),60m,20m) ./providers/azure/e2e ./test/chaos \
		$(if $(FULL),./test/controllermanager/fidelity))

# The images have the version that the charts ask for, and are for this machine only.
.PHONY: e2e-install
e2e-install: ## Install by Helm into a cluster that kubeadm made, from images in a registry; needs root; FULL=1 runs all of it
	hack/node/build.sh
	$$(hack/tool.sh images .) build --root . --out dist/e2e-images --platforms linux/$$($(GO) env GOARCH) \
		--version $$(sed -n 's/^appVersion: *//p' charts/machinist/Chart.yaml) \
		--programs machinist-manager,machinist-operator,machinist-provider-sim,simcloud
	$(if $(FULL),HELM3=$$(hack/tool.sh helm3 helm.sh/helm/v3/cmd/helm)) HELM4=$$(hack/tool.sh helm4 helm.sh/helm/v4/cmd/helm) \
		INSTALL_IMAGES=$(CURDIR)/dist/e2e-images FULL=$(FULL) \
		$(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 1 -timeout $(if $(FULL),90m,15m) ./test/realnode ./test/realnode/fidelity ./test/install

.PHONY: kubeadm-cluster
kubeadm-cluster: ## Make a cluster by kubeadm in namespaces of this machine, and keep it until interrupted; needs root; ARGS="-layout dist/images"
	hack/node/build.sh
	$(GO) build -o bin/kubeadm-cluster ./test/realnode/kubeadm
	bin/kubeadm-cluster $(ARGS)

.PHONY: e2e-openstack
e2e-openstack: controlplane build ## Run fleets at a real OpenStack with fake hypervisors, from Debian 12's packages; FULL=1 runs all of it
	$(if $(FULL),$(GOTESTSUM) -- -tags openstack -vet=off -count=1 -timeout 30m ./hack/openstack)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -timeout $(if $(FULL),120m,20m) ./providers/openstack/e2e

# Machines boot one at a time, since each takes a processor; the suite beside them waits for most of its time.
.PHONY: e2e-vm
e2e-vm: controlplane build guest ## Boot real machines by libvirt and QEMU, with a real kubelet; needs Debian 12 and root; FULL=1 runs all of it
	$(BUILD) controlplane kubelet@v1.37.3
	$(if $(FULL),$(GOTESTSUM) -- -tags libvirt -vet=off -count=1 -timeout 10m ./hack/libvirt)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 2 -timeout $(if $(FULL),120m,40m) ./providers/libvirt/vm ./providers/libvirt/e2e

# A module of its own, as that which drives the browser is needed for nothing else.
UITEST = cd test/ui && GOWORK=off $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -timeout 10m

.PHONY: e2e-ui
e2e-ui: controlplane build ## Use machinist ui in a browser (Chromium) against the simulated cloud and 10,000 machines
	hack/chromium.sh >/dev/null
	$(UITEST) .

.PHONY: screenshots
screenshots: controlplane build ## Draw the pictures of docs/ui.md anew
	mkdir -p docs/ui
	UI_PICTURES=$(CURDIR)/docs/ui $(UITEST) -run Pictures .

.PHONY: chaos
chaos: controlplane build ## Beat the real processes up for DURATION while people use them, under judges; ARGS="--seed 7" chooses
	$(GO) run ./test/chaos --duration $(DURATION) $(ARGS)

# The first seed of a commit's simulations comes from its hash, so that each commit explores other runs.
SIMULATE = $(GO) run ./test/simulate --seed $(or $(SEED),$$(printf %d 0x$$(git rev-parse --short=8 HEAD || echo 1)))

.PHONY: simulate
simulate: ## Run the controllers in the deterministic world (4 minutes): other clouds, samples of fault plans and of corruptions, random runs; SEED=1 chooses the runs
	$(SIMULATE) --quick $(ARGS)

.PHONY: simulate-full
simulate-full: ## The same with several times as many of each, and with pairs of faults and of what clouds do (30 minutes)
	$(SIMULATE) --full $(ARGS)

.PHONY: mutants
mutants: ## Plant bugs in the controllers, one at a time: the deterministic world must find each
	$(GO) run ./test/simulate mutants $(ARGS)

.PHONY: soak
soak: ## Run every scenario of the world from fresh seeds for HOURS (1), for maintainers to let run beside their work
	$(GO) run ./test/simulate soak --hours $(HOURS) $(ARGS)

.PHONY: smoke
smoke: go ## Take a fleet through a tour on another version of Kubernetes: KUBERNETES=v1.34.4
	KUBERNETES=$(KUBERNETES) $(BUILD) controlplane
	$(BUILD) programs ./cmd/machinist-demo ./cmd/machinist-manager $(DEMO_PROGRAMS_sim)
	assets=$${MACHINIST_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/machinist}/controlplane/$(KUBERNETES) && \
		KUBEBUILDER_ASSETS=$$assets bin/machinist-demo --once && KUBEBUILDER_ASSETS=$$assets bin/machinist-demo --scenario drain

.PHONY: nightly
nightly: ## Run all that is too long for every change: PART=1/3 is a third of it; dist/nightly collects the results of all parts
	$(GO) run ./hack/ci -targets .ci/nightly -limit 120 -part $(or $(PART),1/1) -results dist/nightly

.PHONY: bench
bench: controlplane ## Measure what fleets cost: API writes, time, CPU, memory; ARGS='--machines 1000'
	$(GO) run ./bench $(ARGS)

.PHONY: generate
generate: ## Generate CRDs, deepcopy functions, RBAC and reference documentation
	hack/generate.sh

.PHONY: verify
verify: ## Fail where generated files differ from their sources, a rule has no test, or modules disagree about a version
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	hack/modules.sh
	$(GO) run ./hack/rules
	hack/generate.sh --verify

.PHONY: charts
charts: controlplane ## Lint the charts with Helm, and hold what they render to the schemas of an API server
	$(GOTEST) -tags charts -vet=off -run Charts ./test/api

.PHONY: lint
lint: ## Run golangci-lint, built from its pinned module
	hack/lint.sh

.PHONY: vulncheck
vulncheck: ## Run govulncheck, built from its pinned module; where its database cannot be reached it says so
	hack/vulncheck.sh

.PHONY: fuzz
fuzz: ## Run every fuzz target FUZZTIME (50000x) times each
	@for file in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    echo "== $${file%/*} $$target"; \
	    (cd $${file%/*} && $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) || exit 1; \
	  done; done

.PHONY: clean
clean: ## Remove bin/ and dist/; the cache stays
	rm -rf bin dist
