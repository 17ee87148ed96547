# `make help` lists the targets. Everything that is not Go source is built from pinned modules into a cache outside the
# tree: $MACHINIST_CACHE, by default $XDG_CACHE_HOME/machinist or ~/.cache/machinist.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GO ?= go
ARGS ?=
# gRPC's own pages about traces, which nothing serves, have the linker keep 10 MB of code that nothing calls.
PROGRAM_TAGS := grpcnotrace
# The deterministic world, the API server that it has and what else is of one thread and needs the API server's code, which
# takes minutes to compile, and three times as long to run, with the race detector; and what counts bytes, of which that drops
# some at random.
WORLD := ./bench/micro ./test/api/decode ./test/apiserver/... ./test/controllermanager/... ./test/fidelity ./test/handover \
	./test/incidents ./test/manifests/sources ./test/simulate ./test/simulation
# A workspace's ./... covers only the module it is called in.
MODULES := . ./api ./providers/azure ./providers/libvirt ./providers/openstack
# Only packages with tests: the others would be compiled with the race detector for nothing.
TESTED = $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
# Without vet: `make lint` runs all of it, and it takes longer than to compile what is tested.
TESTFLAGS ?= -race -vet=off -timeout 30m
# All is compiled with the same flags, so that what programs, images, tools and tests share is compiled once. Only the race
# detector needs cgo. A compiler that collects its garbage seldom needs a quarter less of the processor.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath '-toolexec=env GOGC=400')
# The same for tests and their control planes. The programs keep the pace that they choose, except in unit tests.
test: export GOGC := 400
e2e e2e-install e2e-openstack e2e-vm e2e-ui: export CONTROLPLANE_GOGC := 400
# Where control planes run beside each other, each of their processes has one thread.
test e2e: export CONTROLPLANE_GOMAXPROCS := 1
# Whoever changes an object of a cache, which others have too, panics.
test e2e: export KUBE_CACHE_MUTATION_DETECTOR = true
# Prints what tests print while they run, and all that the failed ones printed once more at the end.
GOTESTSUM = $$($(CURDIR)/hack/tool.sh tools gotest.tools/gotestsum) --format standard-verbose
# A number of runs, not a time: where a time ends, Go now and then reports that as a failure ("context deadline exceeded").
FUZZTIME ?= 50000x
DURATION ?= 10m
HOURS ?= 1

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build the binaries, and the licence notices of what they contain, into bin/
	$(GO) build -tags $(PROGRAM_TAGS) -o bin/ ./cmd/... ./providers/azure/cmd/... ./providers/libvirt/cmd/... ./providers/openstack/cmd/...
	@cd hack/tools && GOWORK=off $(GO) run ./notices -folders ../..,../../providers/azure,../../providers/libvirt,../../providers/openstack >../../bin/THIRD_PARTY_NOTICES

# Built by a module of its own, so that its dependencies are not those of the programs.
.PHONY: images
images: ## Build an image of each program into dist/images; VERSION=v1.2.3, PLATFORMS=linux/amd64, PUSH=registry/prefix, ARGS=--again
	cd hack/images && GOWORK=off $(GO) build -o ../../bin/images .
	bin/images build --root . --version "$(VERSION)" --platforms "$(PLATFORMS)" --push "$(PUSH)" $(ARGS)

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver and the rest of a control plane into the cache (about 5 minutes, once)
	hack/controlplane/build.sh

.PHONY: guest
guest: ## Build the disk image that virtual machines of the demo and of tests boot; needs Debian 12 and root
	hack/guest/build.sh

.PHONY: demo
demo: controlplane build $(if $(findstring libvirt,$(ARGS)),guest) ## Run everything on this machine with a sample fleet; ARGS=--once runs a tour and ends
	bin/machinist-demo $(ARGS)

# The Azure driver's tests take long and wait for half of it, so they come first, and others run beside them.
.PHONY: test
test: controlplane verify ## Unit tests and tests against a real API server
	CLOUD_INIT_SCHEMA=$$(hack/cloudinit.sh) CGO_ENABLED=1 $(GO) test $(TESTFLAGS) -p 3 $$($(TESTED) ./providers/azure/... \
		./providers/libvirt/... ./providers/openstack/... ./api/... ./... | grep -v -x -F -f <($(TESTED) $(WORLD)))
	cd hack/images && GOWORK=off $(GO) vet ./... && GOWORK=off $(GO) test ./...
	cd test/ui && GOWORK=off $(GO) vet -tags e2e ./...
	$(GO) test -vet=off -timeout 30m $(WORLD)

.PHONY: e2e
e2e: controlplane build ## Long scenarios: the real binaries, crashes, two leaders, whole tours; FULL=1 runs all of it
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -parallel $(if $(FULL),3 -timeout 90m,5 -timeout 60m) ./test/e2e
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 2 -timeout $(if $(FULL),60m,20m) ./providers/azure/e2e ./test/chaos ./test/controllermanager/fidelity

# The images have the version that the charts ask for, and are for this machine only.
.PHONY: e2e-install
e2e-install: ## Install by Helm into a cluster with a real node, from images in a registry; needs root; FULL=1 runs all of it
	hack/node/build.sh
	$$(hack/tool.sh images .) build --root . --out dist/e2e-images --platforms linux/$$($(GO) env GOARCH) \
		--version $$(sed -n 's/^appVersion: *//p' charts/machinist/Chart.yaml) \
		--programs machinist-manager,machinist-operator,machinist-provider-sim,simcloud
	$(if $(FULL),HELM3=$$(hack/tool.sh helm3 helm.sh/helm/v3/cmd/helm)) HELM4=$$(hack/tool.sh helm4 helm.sh/helm/v4/cmd/helm) \
		INSTALL_IMAGES=$(CURDIR)/dist/e2e-images FULL=$(FULL) \
		$(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 1 -timeout $(if $(FULL),90m,15m) ./test/realnode ./test/realnode/fidelity ./test/install

.PHONY: e2e-openstack
e2e-openstack: controlplane build ## Run fleets at a real OpenStack with fake hypervisors, from Debian 12's packages; FULL=1 runs all of it
	$(if $(FULL),$(GOTESTSUM) -- -tags openstack -vet=off -count=1 -timeout 30m ./hack/openstack)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -timeout $(if $(FULL),120m,20m) ./providers/openstack/e2e

# Machines boot one at a time, since each takes a processor; the suite beside them waits for most of its time.
.PHONY: e2e-vm
e2e-vm: controlplane build guest ## Boot real machines by libvirt and QEMU, with a real kubelet; needs Debian 12 and root; FULL=1 runs all of it
	$(if $(FULL),hack/controlplane/build.sh node v1.36.4)
	$(if $(FULL),$(GOTESTSUM) -- -tags libvirt -vet=off -count=1 -timeout 10m ./hack/libvirt)
	FULL=$(FULL) $(GOTESTSUM) -- -tags e2e -vet=off -count=1 -p 2 -timeout $(if $(FULL),120m,40m) ./providers/libvirt/vm ./providers/libvirt/e2e

# A module of its own, as that which drives the browser is needed for nothing else.
UITEST = cd test/ui && GOWORK=off $(GO) test -tags e2e -vet=off -count=1 -timeout 10m

.PHONY: e2e-ui
e2e-ui: controlplane build ## Use machinist ui in a browser (Chromium) against the simulated cloud and 10,000 machines
	hack/chromium.sh >/dev/null
	$(UITEST) -v .

.PHONY: screenshots
screenshots: controlplane build ## Draw the pictures of docs/ui.md anew
	mkdir -p docs/ui
	UI_PICTURES=$(CURDIR)/docs/ui $(UITEST) -run Pictures .

.PHONY: chaos
chaos: controlplane build ## Beat the real processes up for DURATION while people use them, under judges; ARGS="--seed 7" chooses
	$(GO) run ./test/chaos --duration $(DURATION) $(ARGS)

.PHONY: simulate
simulate: ## Run the controllers in the deterministic world: other clouds, even samples of fault plans and of corruptions, and random runs (a few minutes)
	$(GO) run ./test/simulate $(ARGS)

.PHONY: simulate-full
simulate-full: ## The same with several times as many faults and corruptions, with pairs of faults, pairs of what clouds do, and more random runs (up to an hour)
	$(GO) run ./test/simulate --full $(ARGS)

.PHONY: mutants
mutants: ## Plant bugs in the controllers, one at a time: the deterministic world must find each
	$(GO) run ./test/simulate mutants $(ARGS)

.PHONY: soak
soak: ## Run every scenario of the world from fresh seeds for HOURS (1), for maintainers to let run beside their work
	$(GO) run ./test/simulate soak --hours $(HOURS) $(ARGS)

.PHONY: bench
bench: controlplane ## Measure what fleets cost: API writes, time, CPU, memory; ARGS='--machines 1000'
	$(GO) run ./bench $(ARGS)

.PHONY: generate
generate: ## Generate CRDs, deepcopy functions, RBAC and reference documentation
	hack/generate.sh

.PHONY: verify
verify: ## Fail where generated files differ from their sources, a rule has no test, a text uses a private word, or a module does not build alone
	hack/generate.sh --verify
	hack/charts.sh
	$(GO) run ./hack/rules
	$(GO) run ./hack/words
	@for m in $(MODULES); do (cd $$m && GOWORK=off $(GO) list -export ./... >/dev/null) || exit 1; done # Compiles, and links nothing.
	@git ls-files --error-unmatch go.work.sum >/dev/null
	@before=$$(git hash-object go.work.sum); for m in $(MODULES); do (cd $$m && $(GO) list -deps -test ./... >/dev/null) || exit 1; done; \
		[ "$$before" = "$$(git hash-object go.work.sum)" ] || { echo "go.work.sum lacked checksums: commit it"; exit 1; }
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "not gofmt'ed: $$unformatted"; exit 1; }

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
