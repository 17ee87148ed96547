#!/bin/sh
# Runs golangci-lint over every module of the workspace. It is built from the version that hack/lint/go.mod pins, into
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/tools/<hash of go.mod and go.sum>
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
hash=$(cat "$root/hack/lint/go.mod" "$root/hack/lint/go.sum" | git hash-object --stdin | cut -c1-12)
tools=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/tools/$hash
if [ ! -x "$tools/golangci-lint" ]; then
	echo "lint: building golangci-lint, once" >&2
	mkdir -p "$tools"
	(cd "$root/hack/lint" && GOWORK=off CGO_ENABLED=0 go build -o "$tools/.golangci-lint.$$" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
	mv "$tools/.golangci-lint.$$" "$tools/golangci-lint"
fi
for module in . api providers/azure; do
	(cd "$root/$module" && "$tools/golangci-lint" run --config "$root/.golangci.yaml" "$@" ./...)
done
