#!/bin/sh
# Generates what follows from the Go types of the API:
#
#   api/v1beta1/zz_generated.deepcopy.go   deep copies
#   config/crd/*.yaml                      CustomResourceDefinitions
#   config/rbac/*.yaml                     roles, from the markers in internal/rbac, and their namespace
#   docs/reference/api.md                  the reference of the API
#   internal/permissions/files             copies of providers/*/permissions.yaml
#
# With --verify nothing is written: it fails, and shows the difference, if one
# of them is not what would be generated.
#
# The tool is built from the version that hack/tools/go.mod pins; see hack/tool.sh.
set -eu

mode=write
case "${1:-}" in
"") ;;
--verify) mode=verify ;;
*)
	echo "usage: hack/generate.sh [--verify]" >&2
	exit 2
	;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "generate: $*" >&2; exit 1; }
command -v go >/dev/null || die "the go command is needed and is not in PATH"

controllergen=$("$root/hack/tool.sh" tools sigs.k8s.io/controller-tools/cmd/controller-gen)

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# generated lists what is generated, as paths under $root and under $out.
generated="api/v1beta1/zz_generated.deepcopy.go config/crd config/rbac docs/reference/api.md"

mkdir -p "$out/api/v1beta1" "$out/config/crd" "$out/config/rbac" "$out/docs/reference"
(cd "$root/api" && GOWORK=off "$controllergen" \
	object "crd:crdVersions=v1" paths=./v1beta1 \
	"output:object:dir=$out/api/v1beta1" "output:crd:dir=$out/config/crd")
(cd "$root" && go run ./hack/crds "$out/config/crd" "$out/docs/reference/api.md")
for role in manager-control manager-target provider-control provider-target operator-control metrics-reader; do
	(cd "$root" && GOWORK=off "$controllergen" \
		"rbac:roleName=machinist-$role" "paths=./internal/rbac/$(echo $role | tr -d -)" \
		output:stdout >"$out/config/rbac/$role.yaml")
done
# The namespace of the Roles comes first, so that kubectl applies it before them.
cat >"$out/config/rbac/00-namespace.yaml" <<'EOF'
# Here the processes keep their leases and the record of the cluster id: --leader-election-namespace=machinist-system.
apiVersion: v1
kind: Namespace
metadata:
  name: machinist-system
EOF

# Go embeds no file of another module.
mkdir -p "$out/internal/permissions/files"
for file in "$root"/providers/*/permissions.yaml; do
	cp "$file" "$out/internal/permissions/files/$(basename "$(dirname "$file")").yaml"
done
generated="$generated internal/permissions/files"

status=0
for path in $generated; do
	if [ "$mode" = verify ]; then
		diff -ruN "$root/$path" "$out/$path" || status=1
	elif ! diff -rqN "$root/$path" "$out/$path" >/dev/null 2>&1; then
		rm -rf "${root:?}/$path"
		mkdir -p "$(dirname "$root/$path")"
		cp -R "$out/$path" "$root/$path"
	fi
done
[ $status -eq 0 ] || die "generated files are out of date: run hack/generate.sh"
