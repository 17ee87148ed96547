#!/bin/sh
# Generates these files from the Go code and the charts:
#
#   api/v1beta1/zz_generated.deepcopy.go   deep copies
#   config/crd/*.yaml                      CustomResourceDefinitions
#   charts/*/files                         copies of config/crd, config/rbac and config/monitoring for the charts
#   charts/machinist-provider/templates/_process.tpl   a copy of the file in charts/machinist
#   charts/*/README.md                     the values of the charts, from the comments in values.yaml
#   docs/reference/api.md                  the reference of the API
#   docs/reference/flags.md                all flags of all processes
#   docs/reference/timeouts.md             all fields and flags that are durations
#   docs/reference/cli.md                  the commands of machinist
#   docs/reference/conditions.md           phases, conditions and their reasons
#   docs/reference/labels-and-annotations.md   keys on objects and instances
#   docs/reference/metrics.md              the table in this page
#   docs/reference/provider-specs.md       the fields of the providerSpecs
#   docs/incidents.md, docs/incidents/     incidents of other systems and the tests that reproduce them, from test/incidents
#   config/monitoring                      alerts and dashboards, from internal/install/monitoring
#   docs/runbooks/README.md                the list of alerts, from internal/install/monitoring
#   internal/install/permissions/files     copies of providers/*/permissions.yaml
#
# With --verify, the script writes nothing. It shows the differences and fails if a generated file is outdated.
#
# hack/tool.sh builds the tools from the versions that go.mod files in hack pin.
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

# generated lists the generated files, as paths below $root and $out.
generated="api/v1beta1/zz_generated.deepcopy.go config/crd docs/reference/api.md docs/reference/flags.md
	docs/reference/timeouts.md docs/reference/cli.md docs/reference/conditions.md docs/reference/labels-and-annotations.md
	docs/reference/metrics.md docs/reference/provider-specs.md docs/incidents.md docs/incidents"

mkdir -p "$out/api/v1beta1" "$out/config/crd" "$out/docs/reference"
(cd "$root/api" && GOWORK=off "$controllergen" \
	object "crd:crdVersions=v1" paths=./v1beta1 \
	"output:object:dir=$out/api/v1beta1" "output:crd:dir=$out/config/crd")
(cd "$root" && go run ./hack/crds "$out/config/crd" "$out/docs/reference/api.md")
(cd "$root" && go run ./hack/reference "$out/docs/reference")
(cd "$root" && go run ./hack/incidents "$out/docs")

(cd "$root" && go run ./hack/monitoring "$out")
generated="$generated config/monitoring docs/runbooks/README.md"

# Helm reads no files outside of a chart, so each chart has copies of the files that it needs.
charts=$out/charts
mkdir -p "$charts/machinist/files/crd" "$charts/machinist/files/monitoring" "$charts/machinist/files/rbac" "$charts/machinist-provider/files/rbac"
cp "$out"/config/crd/*.yaml "$charts/machinist/files/crd/"
cp "$root"/config/rbac/*.yaml "$charts/machinist/files/rbac/"
cp -R "$out/config/monitoring/rules.yaml" "$out/config/monitoring/dashboards" "$charts/machinist/files/monitoring/"
mv "$charts/machinist/files/rbac"/provider-*.yaml "$charts/machinist/files/rbac"/migrator-*.yaml \
	"$charts/machinist-provider/files/rbac/"
generated="$generated charts/machinist/files charts/machinist-provider/files"
mkdir -p "$charts/machinist-provider/templates" "$charts/simcloud"
cp "$root/charts/machinist/templates/_process.tpl" "$charts/machinist-provider/templates/"
generated="$generated charts/machinist-provider/templates/_process.tpl"

helmdocs=$("$root/hack/tool.sh" helmdocs github.com/norwoodj/helm-docs/cmd/helm-docs)
for chart in machinist machinist-provider simcloud; do
	(cd "$root" && "$helmdocs" --chart-search-root="charts/$chart" --sort-values-order=file --dry-run \
		--template-files=../readme.gotmpl --log-level=warning >"$charts/$chart/README.md")
	generated="$generated charts/$chart/README.md"
done

# Go cannot embed files of another module.
mkdir -p "$out/internal/install/permissions/files"
for file in "$root"/providers/*/permissions.yaml; do
	cp "$file" "$out/internal/install/permissions/files/$(basename "$(dirname "$file")").yaml"
done
generated="$generated internal/install/permissions/files"

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
