#!/bin/sh
# Runs golangci-lint in all modules of the workspace and in test/ui. hack/lint/go.mod pins its version.
set -eu
export GOGC=400 # needs a third less processor time, and more memory
root=$(cd "$(dirname "$0")/.." && pwd)
lint=$("$root/hack/tool.sh" lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
# One run checks all modules. Separate runs would need three times as much processor time, because each of them would
# load the shared packages again.
(cd "$root" && "$lint" run --config "$root/.golangci.yaml" "$@" \
	./... ./api/... ./providers/azure/... ./providers/libvirt/... ./providers/openstack/... ./providers/vsphere/...)
(cd "$root/test/ui" && GOWORK=off "$lint" run --config "$root/.golangci.yaml" "$@" ./...)
