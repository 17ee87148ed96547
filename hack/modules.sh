#!/bin/sh
# Checks the Go modules of the workspace and leaves what it corrects in the working tree:
#
# - All of them, the control plane included, require the same version of each module that they share. Only then do
#   programs, tests and control plane share what is compiled.
# - go.work.sum has every checksum.
# - Each module builds alone, as its users get it.
set -eu
cd "$(dirname "$0")/.."
modules=$(sed -n 's/^\t\(\..*\)/\1/p; s/^\t\.$/./p' go.work | sort -u)
state() { for module in $modules; do cat "$module/go.mod" "$module/go.sum"; done | cat - go.work go.work.sum | git hash-object --stdin; }

before=$(state)
go work sync
for module in $modules; do
	(cd "$module" && go list -deps -test ./... >/dev/null)
done
[ "$before" = "$(state)" ] || {
	echo "modules: the modules of the workspace required different versions, or go.work.sum lacked checksums: commit the changes" >&2
	git --no-pager diff --stat -- go.work go.work.sum '*go.mod' '*go.sum' >&2
	exit 1
}
for module in $modules; do
	[ "$module" = ./hack/controlplane ] || (cd "$module" && GOWORK=off go list -export ./... >/dev/null) # Compiles, and links nothing.
done
