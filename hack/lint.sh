#!/bin/sh
# Runs golangci-lint over every module of the workspace, and over test/ui. It is built from the version that hack/lint/go.mod pins.
set -eu
export GOGC=400 # It needs a third less of the processor, and more memory.
root=$(cd "$(dirname "$0")/.." && pwd)
lint=$("$root/hack/tool.sh" lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
# In one run, as what modules share would be loaded and checked anew in each: that took three times as much of the processor.
(cd "$root" && "$lint" run --config "$root/.golangci.yaml" "$@" \
	./... ./api/... ./providers/azure/... ./providers/libvirt/... ./providers/openstack/...)
(cd "$root/test/ui" && GOWORK=off "$lint" run --config "$root/.golangci.yaml" "$@" ./...)
