package source

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodeAutoscalerOption: an option for the old cluster-autoscaler has no counterpart.
const CodeAutoscalerOption = "AutoscalerOption"

// autoscalerOption precedes the name of an option in an annotation for cluster-autoscaler, after the API group.
const autoscalerOption = "/autoscaling-options-"

const gardenerAutoscaler = "autoscaler.gardener.cloud/"

// gardenerOptions maps options of Gardener's cluster-autoscaler to those of the provider clusterapi.
var gardenerOptions = map[string]string{
	"max-node-provision-time":              "maxnodeprovisiontime",
	"scale-down-gpu-utilization-threshold": "scaledowngpuutilizationthreshold",
	"scale-down-unneeded-time":             "scaledownunneededtime",
	"scale-down-unready-time":              "scaledownunreadytime",
	"scale-down-utilization-threshold":     "scaledownutilizationthreshold",
}

// autoscalerOptions converts the options that cluster-autoscaler reads from annotations of a set or deployment.
// Options of the old system's own API group take precedence.
func (d *dialect) autoscalerOptions(m *metadata) {
	own := v1beta1.GroupVersion.Group + autoscalerOption
	for _, group := range []string{"cluster.x-k8s.io", d.autoscaler} {
		for _, key := range slices.Sorted(maps.Keys(m.annotations)) {
			if name, found := strings.CutPrefix(key, group+autoscalerOption); found && group != "" {
				m.annotations[own+name] = m.annotations[key]
				delete(m.annotations, key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.annotations)) {
		option, found := strings.CutPrefix(key, gardenerAutoscaler)
		value := m.annotations[key]
		if !found {
			continue
		}
		delete(m.annotations, key)
		switch name, known := gardenerOptions[option]; {
		case value == "": // Gardener writes all options, and empty ones have no effect.
		case known:
			m.annotations[own+name] = value
		default:
			m.report(provider.FindingLoss, CodeAutoscalerOption, "annotations."+key, "The provider clusterapi of "+
				"cluster-autoscaler has no such option for a single deployment or set.")
		}
	}
}
