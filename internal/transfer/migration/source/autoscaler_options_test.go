package source

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"machinist.dev/machinist/pkg/provider"
)

// Rule: migration-keeps-autoscaler-options.
func TestAutoscalerOptions(t *testing.T) {
	const ours = "machinist.dev/autoscaling-options-"
	for name, c := range map[string]struct {
		group, kind string
		annotations string
		want        map[string]string
		findings    []string
	}{
		"own group": {provider.SourceClusterK8s, "MachineDeployment",
			"cluster.k8s.io/autoscaling-options-scaledownunneededtime: 20m",
			map[string]string{ours + "scaledownunneededtime": "20m"}, nil},
		"group of today's Cluster API": {provider.SourceOpenShift, "MachineSet",
			"cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime: 5m",
			map[string]string{ours + "maxnodeprovisiontime": "5m"}, nil},
		"own group takes precedence": {provider.SourceOpenShift, "MachineSet",
			"cluster.x-k8s.io/autoscaling-options-scaledownunreadytime: 1m, " +
				"machine.openshift.io/autoscaling-options-scaledownunreadytime: 2m",
			map[string]string{ours + "scaledownunreadytime": "2m"}, nil},
		"Gardener": {provider.SourceGardener, "MachineDeployment",
			"autoscaler.gardener.cloud/scale-down-utilization-threshold: '0.3', " +
				"autoscaler.gardener.cloud/scale-down-unready-time: ''",
			map[string]string{ours + "scaledownutilizationthreshold": "0.3"}, nil},
		"Gardener, unknown": {provider.SourceGardener, "MachineDeployment", "autoscaler.gardener.cloud/surprise: '1'",
			map[string]string{}, []string{"Loss AutoscalerOption metadata.annotations.autoscaler.gardener.cloud/surprise"}},
		"MachineAutoscaler": {provider.SourceOpenShift, "MachineSet",
			"autoscaling.openshift.io/machineautoscaler: openshift-machine-api/a, " +
				"machine.openshift.io/cluster-api-autoscaler-node-group-min-size: '1', " +
				"machine.openshift.io/cluster-api-autoscaler-node-group-max-size: '3'",
			map[string]string{"machinist.dev/cluster-api-autoscaler-node-group-min-size": "1",
				"machinist.dev/cluster-api-autoscaler-node-group-max-size": "3"},
			[]string{"Note MachineAutoscaler metadata.annotations.autoscaling.openshift.io/machineautoscaler"}},
	} {
		t.Run(name, func(t *testing.T) {
			system := Systems()[c.group]
			old := read(t, fmt.Sprintf("apiVersion: %s/%s\nkind: %s\nmetadata: {name: a, annotations: {%s}}\nspec: {}\n",
				c.group, system.Kinds()[0].Version, c.kind, c.annotations))
			got := system.Convert(roleOf(t, system, old), old, nil)
			if diff := cmp.Diff(c.want, got.Object.GetAnnotations(), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			var findings []string
			for _, f := range got.Findings {
				if f.Code == CodeAutoscalerOption || f.Code == CodeMachineAutoscaler {
					findings = append(findings, string(f.Level)+" "+f.Code+" "+f.Path)
				}
			}
			if diff := cmp.Diff(c.findings, findings); diff != "" {
				t.Error(diff)
			}
		})
	}
}
