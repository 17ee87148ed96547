#!/bin/sh
# Checks the charts with third-party tools: Helm 4 lints and renders them, and kubeconform validates the rendered objects
# against JSON schemas, which the pinned control plane publishes.
#
#   hack/charts.sh <folder of JSON schemas>
#
# Without a folder, the script only lints the charts.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
helm=$("$root/hack/tool.sh" helm4 helm.sh/helm/v4/cmd/helm)
cd "$root"
lint() { # <chart> <flags>
	chart=$1; shift
	"$helm" lint --strict --quiet "charts/$chart" "$@"
}
lint machinist
lint machinist --set operator.enabled=true,networkPolicy.enabled=true \
	--set metrics.certSecret=metrics,metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboards.enabled=true
lint machinist-provider --set provider.name=sim
lint simcloud --set persistence.enabled=true
[ $# -gt 0 ] || exit 0
kubeconform=$("$root/hack/tool.sh" kubeconform github.com/yannh/kubeconform/cmd/kubeconform)
{
	"$helm" template machinist charts/machinist --namespace machinist-system \
		--set operator.enabled=true,networkPolicy.enabled=true
	echo ---
	"$helm" template machinist-provider-sim charts/machinist-provider --namespace machinist-system \
		--set provider.name=sim,networkPolicy.enabled=true
	echo ---
	"$helm" template simcloud charts/simcloud --namespace machinist-system --set persistence.enabled=true
} | "$kubeconform" -strict -summary -schema-location "$1/{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json"
