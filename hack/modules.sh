#!/bin/sh
# Checks the Go modules of the workspace, and corrects the files in the working tree. It makes sure that:
#
# - All modules, including the control plane, require the same versions of shared modules. Otherwise, programs, tests and
#   control plane cannot share compiled packages.
# - go.work.sum contains all checksums, so that commands such as go doc do not change it.
# - Each module can be built without the workspace, as its users build it.
set -eu
cd "$(dirname "$0")/.."
modules=$(sed -n 's/^\t\(\..*\)/\1/p; s/^\t\.$/./p' go.work | sort -u)
state() { for module in $modules; do cat "$module/go.mod" "$module/go.sum"; done | cat - go.work go.work.sum | git hash-object --stdin; }

before=$(state)
go work sync
go list -m all >/dev/null
for module in $modules; do
	(cd "$module" && go list -deps -test ./... >/dev/null)
done
[ "$before" = "$(state)" ] || {
	echo "modules: the modules of the workspace required different versions, or go.work.sum lacked checksums; commit the corrections" >&2
	git --no-pager diff --stat -- go.work go.work.sum '*go.mod' '*go.sum' >&2
	exit 1
}
for module in $modules; do
	[ "$module" = ./hack/controlplane ] || (cd "$module" && GOWORK=off go list -export ./... >/dev/null) # compiles without linking
done
