package source

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

// sapcloud returns a Gardener object. metadata and spec are in YAML's flow style.
func sapcloud(t *testing.T, kind, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	return read(t, fmt.Sprintf("{apiVersion: machine.sapcloud.io/v1alpha1, kind: %s, metadata: {name: a, namespace: ns, %s}, spec: {%s}}",
		kind, metadata, spec))
}

// sapcloudPool returns a deployment. The settings are in the machine spec of its template.
func sapcloudPool(t *testing.T, metadata, spec, settings string) *unstructured.Unstructured {
	t.Helper()
	return sapcloud(t, "MachineDeployment", metadata, "selector: {matchLabels: {a: b}}, "+spec+
		" template: {metadata: {labels: {a: b}}, spec: {class: {kind: MachineClass, name: c}, "+settings+"}}")
}

// Rule: migration-states-old-defaults.
func TestDefaultsOfGardenerAreExplicit(t *testing.T) {
	c := machineSapcloud{}.Convert(RoleDeployment, sapcloudPool(t, "", "", ""), nil)
	data, err := yaml.Marshal(c.Object.(*v1beta1.MachineDeployment).Spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`deletePolicy: Oldest
progressDeadline: 99999h0m0s
remediation:
  maxInFlight: 1
replicas: 0
revisionHistoryLimit: 100
selector:
  matchLabels:
    a: b
strategy:
  rollingUpdate:
    maxSurge: 1
    maxUnavailable: 1
  type: RollingUpdate
template:
  metadata:
    labels:
      a: b
  spec:
    timeouts:
      creation: 20m0s
      drain: 2h0m0s
      update: 20m0s
      volumeDetach: 2m0s
`, string(data)); diff != "" {
		t.Error(diff)
	}
}

// Rule: migration-flags-and-annotations-count.
func TestTimeoutsOfGardener(t *testing.T) {
	flags := Flags{"machine-creation-timeout": "31m", "machine-drain-timeout": "32m",
		"machine-inplace-update-timeout": "33m", "machine-pv-detach-timeout": "34m"}
	const own = "creationTimeout: 41m, drainTimeout: 42m, inPlaceUpdateTimeout: 43m"
	const annotation = `annotations: {node.machine.sapcloud.io/effective-creation-timeout: 51m}`
	tests := []struct {
		name           string
		flags          Flags
		metadata, spec string
		want           string // creation, drain, update, volumeDetach
		findings       []string
	}{
		{name: "defaults", want: "20m0s 2h0m0s 20m0s 2m0s"},
		{name: "flags", flags: flags, want: "31m0s 32m0s 33m0s 34m0s"},
		{name: "own over flags", flags: flags, spec: own, want: "41m0s 42m0s 43m0s 34m0s"},
		{name: "annotation over own", flags: flags, spec: own, metadata: annotation, want: "51m0s 42m0s 43m0s 34m0s"},
		{name: "no time to drain", spec: "drainTimeout: 0s", want: "20m0s 0s 20m0s 2m0s"},
		{name: "no time to create", spec: "creationTimeout: 0s", want: "0s 2h0m0s 20m0s 2m0s",
			findings: []string{"Blocker InvalidValue spec.template.spec.creationTimeout"}},
		{name: "no time to update by flag", flags: Flags{"machine-inplace-update-timeout": "0s"}, want: "20m0s 2h0m0s 0s 2m0s",
			findings: []string{"Blocker InvalidValue spec.template.spec.inPlaceUpdateTimeout"}},
		{name: "negative", spec: "drainTimeout: -1s", want: "20m0s 2h0m0s 20m0s 2m0s",
			findings: []string{"Blocker InvalidValue spec.template.spec.drainTimeout"}},
		{name: "not a duration", spec: "drainTimeout: soon", want: "20m0s 2h0m0s 20m0s 2m0s",
			findings: []string{"Blocker WrongType spec.template.spec.drainTimeout"}},
		{name: "flag without a duration", flags: Flags{"machine-pv-detach-timeout": "soon"}, want: "20m0s 2h0m0s 20m0s 2m0s",
			findings: []string{"Blocker InvalidValue "}},
		{name: "retries", spec: "maxEvictRetries: 3", want: "20m0s 2h0m0s 20m0s 2m0s",
			findings: []string{"Loss NotSupported spec.template.spec.maxEvictRetries"}},
		{name: "retries by flag", flags: Flags{"machine-max-evict-retries": "3"}, want: "20m0s 2h0m0s 20m0s 2m0s",
			findings: []string{"Loss NotSupported spec.template.spec.maxEvictRetries"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := machineSapcloud{}.Convert(RoleDeployment, sapcloudPool(t, test.metadata, "", test.spec), test.flags)
			got := c.Object.(*v1beta1.MachineDeployment).Spec.Template.Spec.Timeouts
			if text := fmt.Sprint(got.Creation.Duration, got.Drain.Duration, got.Update.Duration,
				got.VolumeDetach.Duration); text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
			findings := slices.DeleteFunc(codes(c), func(f string) bool { return strings.Contains(f, CodeAutoscalerBounds) })
			if !slices.Equal(findings, test.findings) {
				t.Errorf("the findings are %q", findings)
			}
		})
	}
}

// Rules: migration-health-as-before, migration-flags-and-annotations-count.
func TestHealthChecksOfGardener(t *testing.T) {
	many := strings.Repeat("x,", 40)
	for i := range 40 {
		many = strings.Replace(many, "x,", fmt.Sprintf("Trouble%d,", i), 1)
	}
	tests := []struct {
		name, spec string
		flags      Flags
		want       string // types and timeouts of the expected conditions
		n          int    // conditions
		finding    string
	}{
		{name: "defaults", want: "Ready KernelDeadlock ReadonlyFilesystem DiskPressure NetworkUnavailable 10m0s", n: 10},
		{name: "flags", flags: Flags{"machine-health-timeout": "7m", "node-conditions": "Odd"}, want: "Ready Odd 7m0s", n: 4},
		{name: "own over flags", flags: Flags{"machine-health-timeout": "7m", "node-conditions": "Odd"},
			spec: "healthTimeout: 8m, nodeConditions: 'Even,,Even'", want: "Ready Even 8m0s", n: 4},
		{name: "empty list", spec: "nodeConditions: ''", want: "Ready 10m0s", n: 2},
		{name: "misspelt", spec: "nodeConditions: 'diskPressure, Odd'", want: "Ready 10m0s", n: 2,
			finding: "Note InvalidValue spec.template.spec.nodeConditions"},
		{name: "Ready", spec: "nodeConditions: Ready", want: "Ready 10m0s", n: 2,
			finding: "Blocker InvalidValue spec.template.spec.nodeConditions"},
		{name: "many", spec: "nodeConditions: '" + many + "'", n: maxNodeConditions,
			finding: "Loss Bounded spec.template.spec.nodeConditions"},
		{name: "disabled", spec: "disableHealthTimeout: true"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := machineSapcloud{}.Convert(RoleDeployment, sapcloudPool(t, "", "", test.spec), test.flags)
			check := c.HealthCheck.Spec
			if test.n == 0 {
				if check.Remediation.Type != v1beta1.RemediationNone || len(check.UnhealthyNodeConditions) > 0 {
					t.Errorf("the check is %+v", check)
				}
				return
			}
			var got []string
			for i, u := range check.UnhealthyNodeConditions {
				if i%2 == 0 {
					got = append(got, string(u.Type))
				} else if want := check.UnhealthyNodeConditions[i-1]; u.Type != want.Type || u.Timeout != want.Timeout ||
					u.Status != "Unknown" || (want.Status == "False") != (u.Type == "Ready") {
					t.Errorf("%v follows %v", u, want)
				}
			}
			got = append(got, check.UnhealthyNodeConditions[0].Timeout.Duration.String())
			if test.want != "" && strings.Join(got, " ") != test.want || len(check.UnhealthyNodeConditions) != test.n {
				t.Errorf("got %q, %d conditions", got, len(check.UnhealthyNodeConditions))
			}
			if check.Remediation.Type != v1beta1.RemediationReplace || check.MaxUnhealthy.String() != "100%" {
				t.Errorf("the remediation is %s with maxUnhealthy %s", check.Remediation.Type, check.MaxUnhealthy)
			}
			if found := slices.Contains(codes(c), test.finding); found != (test.finding != "") {
				t.Errorf("the findings are %q", codes(c))
			}
		})
	}
}

// Rule: migration-replaces-no-more-than-before.
func TestSetOfGardenerDeploymentHasNoCheck(t *testing.T) {
	for _, old := range sources.Samples(provider.SourceGardener)["healthy"] {
		c := machineSapcloud{}.Convert(roleOf(t, machineSapcloud{}, old), old, nil)
		want := old.GetKind() == "MachineDeployment" || old.GetName() == "alone"
		if want != (c.HealthCheck != nil) {
			t.Errorf("%s %s: the check is %v", old.GetKind(), old.GetName(), c.HealthCheck)
		}
	}
}

// Rule: migration-loses-nothing-silently.
func TestStrategiesOfGardener(t *testing.T) {
	tests := []struct{ name, strategy, want, findings string }{
		{name: "rolling", strategy: "type: RollingUpdate, rollingUpdate: {maxSurge: 30%, maxUnavailable: 2}",
			want: "{rollingUpdate: {maxSurge: 30%, maxUnavailable: 2}, type: RollingUpdate}"},
		{name: "bounds for another strategy", strategy: "type: Recreate, rollingUpdate: {maxSurge: 0, maxUnavailable: 0}",
			want: "{type: Recreate}"},
		{name: "nothing can be replaced", strategy: "type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}",
			want:     "{rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}, type: RollingUpdate}",
			findings: "Blocker InvalidValue spec.strategy.rollingUpdate.maxUnavailable"},
		{name: "in place", strategy: "type: InPlaceUpdate, inPlaceUpdate: {maxUnavailable: 2}",
			want: "{inPlace: {maxUnavailable: 2, orchestration: Auto}, type: InPlace}"},
		{name: "in place with surge", strategy: "type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, maxUnavailable: 0}",
			want: "{inPlace: {maxUnavailable: 1, orchestration: Auto}, type: InPlace}",
			findings: "Note Bounded spec.strategy.inPlaceUpdate.maxUnavailable, " +
				"Loss NotSupported spec.strategy.inPlaceUpdate.maxSurge"},
		{name: "manual orchestration", strategy: "type: InPlaceUpdate, inPlaceUpdate: {orchestrationType: Manual}",
			want:     "{inPlace: {maxUnavailable: 1, orchestration: Manual}, type: InPlace}",
			findings: "Note NotSupported spec.strategy.inPlaceUpdate.orchestrationType"},
		{name: "unknown", strategy: "type: Canary", want: "{}", findings: "Blocker InvalidValue spec.strategy.type"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := sapcloudPool(t, "", "strategy: {"+test.strategy+"},", "")
			c := machineSapcloud{}.Convert(RoleDeployment, old, nil)
			var want v1beta1.DeploymentStrategy
			if err := yaml.UnmarshalStrict([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, c.Object.(*v1beta1.MachineDeployment).Spec.Strategy); diff != "" {
				t.Error(diff)
			}
			findings := codes(c)
			// The last finding is always about the autoscaler.
			if got := strings.Join(findings[:len(findings)-1], ", "); got != test.findings {
				t.Errorf("the findings are %s", got)
			}
		})
	}
}

// Rule: migration-acts-on-annotations-later.
func TestAnnotationsOfGardenerArePostponed(t *testing.T) {
	const until = "2030-01-31T12:00:00Z"
	tests := []struct {
		name, labels, annotations, expiry string
		want                              map[string]string
		findings                          string
	}{
		{name: "nothing"},
		{name: "default priority", annotations: "machinepriority.machine.sapcloud.io: '3'"},
		{name: "priority", annotations: "machinepriority.machine.sapcloud.io: '1'",
			want: map[string]string{v1beta1.AnnotationDeletePriority: "1"}},
		{name: "selected by the autoscaler", annotations: "machinepriority.machine.sapcloud.io: '1', machine.sapcloud.io/marked-for-deletion-time: x",
			want: map[string]string{v1beta1.AnnotationDeleteMachine: "true"}},
		{name: "selected by the autoscaler, then another priority", annotations: "machinepriority.machine.sapcloud.io: '2', machine.sapcloud.io/marked-for-deletion-time: x",
			want: map[string]string{v1beta1.AnnotationDeletePriority: "2"}},
		{name: "a time without the priority", annotations: "machine.sapcloud.io/marked-for-deletion-time: x"},
		{name: "not a number", annotations: "machinepriority.machine.sapcloud.io: high",
			findings: "Note InvalidValue metadata.annotations.machinepriority.machine.sapcloud.io"},
		{name: "force deletion", labels: "force-deletion: 'True'", want: map[string]string{v1beta1.AnnotationForceDelete: "true"}},
		{name: "other value for force deletion", labels: "force-deletion: 'true'"},
		{name: "preserve now", annotations: "node.machine.sapcloud.io/preserve: now",
			want:     map[string]string{v1beta1.AnnotationPreserve: "now"},
			findings: "Note Preserve metadata.annotations.node.machine.sapcloud.io/preserve"},
		{name: "preserve when failed", annotations: "node.machine.sapcloud.io/preserve: when-failed",
			want: map[string]string{v1beta1.AnnotationPreserve: "when-failed"}},
		{name: "preserved since it failed", annotations: "node.machine.sapcloud.io/preserve: auto-preserved", expiry: until,
			want:     map[string]string{v1beta1.AnnotationPreserve: "when-failed", v1beta1.AnnotationPreservedUntil: until},
			findings: "Note Preserve metadata.annotations.node.machine.sapcloud.io/preserve"},
		{name: "preserved by its Node", expiry: until,
			want:     map[string]string{v1beta1.AnnotationPreserve: "now", v1beta1.AnnotationPreservedUntil: until},
			findings: "Note Preserve status.currentStatus.preserveExpiryTime"},
		{name: "not preserved", annotations: "node.machine.sapcloud.io/preserve: 'false'"},
		{name: "other value for preserve", annotations: "node.machine.sapcloud.io/preserve: perhaps",
			findings: "Note InvalidValue metadata.annotations.node.machine.sapcloud.io/preserve"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := sapcloud(t, "Machine", "labels: {"+test.labels+"}, annotations: {"+test.annotations+"}", "class: {name: c}")
			if test.expiry != "" {
				_ = unstructured.SetNestedField(old.Object, test.expiry, "status", "currentStatus", "preserveExpiryTime")
			}
			c := machineSapcloud{}.Convert(RoleMachine, old, nil)
			if len(c.Object.GetAnnotations())+len(c.Object.GetLabels()) > 0 {
				t.Errorf("the machine already has %v and %v", c.Object.GetAnnotations(), c.Object.GetLabels())
			}
			if len(test.want)+len(c.LaterAnnotations) > 0 && !cmp.Equal(test.want, c.LaterAnnotations) {
				t.Error(cmp.Diff(test.want, c.LaterAnnotations))
			}
			if got := strings.Join(codes(c), ", "); got != test.findings {
				t.Errorf("the findings are %s", got)
			}
		})
	}
}

// Rule: migration-reads-what-is-in-flight.
func TestStateOfGardenerMachines(t *testing.T) {
	want := map[string]Machine{
		"creating": {}, "deleting": {Deleting: true}, "failed": {Failed: true}, "preserved": {Failed: true},
		"updating": {Updating: true}, "selected": {Updating: true}, "update-failed": {Failed: true},
	}
	for _, old := range sources.Samples(provider.SourceGardener)["in-flight"] {
		if old.GetKind() != "Machine" {
			continue
		}
		got := *machineSapcloud{}.Convert(RoleMachine, old, nil).Machine
		if name := got.NodeName; name != old.GetLabels()["node"] {
			t.Errorf("%s: the Node is %q", old.GetName(), name)
		}
		got.NodeName, got.ProviderID = "", ""
		if expected, listed := want[old.GetName()]; !listed || !reflect.DeepEqual(got, expected) {
			t.Errorf("%s is %+v", old.GetName(), got)
		}
	}
}

// Rules: migration-credentials-in-order, migration-loses-nothing-silently.
func TestClassesOfGardener(t *testing.T) {
	tests := []struct {
		name, fields string
		flags        Flags
		credentials  []types.NamespacedName
		userData     *KeyRef
		findings     string
	}{
		{name: "one Secret", fields: "secretRef: {namespace: other, name: s}",
			credentials: []types.NamespacedName{{Namespace: "other", Name: "s"}},
			userData:    &KeyRef{"Secret", "other", "s", "userData"}},
		{name: "credentialsSecretRef takes precedence", fields: "credentialsSecretRef: {name: account}, secretRef: {name: s}",
			credentials: []types.NamespacedName{{Namespace: "ns", Name: "s"}, {Namespace: "ns", Name: "account"}},
			userData:    &KeyRef{"Secret", "ns", "s", "userData"}},
		{name: "tokens in groups", fields: "secretRef: {name: s}", flags: Flags{"bootstrap-token-auth-extra-groups": "g"},
			credentials: []types.NamespacedName{{Namespace: "ns", Name: "s"}},
			userData:    &KeyRef{"Secret", "ns", "s", "userData"},
			findings:    "Loss TokenGroups secretRef"},
		{name: "only credentialsSecretRef", fields: "credentialsSecretRef: {name: account}",
			credentials: []types.NamespacedName{{Namespace: "ns", Name: "account"}}, findings: "Loss UserData secretRef"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := read(t, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineClass, metadata: {name: a.b, namespace: ns}, "+
				"provider: Azure, providerSpec: {a: {b: [1]}}, "+test.fields+"}")
			c := machineSapcloud{}.Convert(RoleClass, old, test.flags)
			want := &Class{Name: "a.b", Provider: "Azure", Path: "providerSpec", Credentials: test.credentials,
				UserData: test.userData, Spec: map[string]any{"a": map[string]any{"b": []any{int64(1)}}}}
			if diff := cmp.Diff(want, c.Class); diff != "" {
				t.Error(diff)
			}
			if got := strings.Join(codes(c), ", "); got != test.findings {
				t.Errorf("the findings are %s", got)
			}
		})
	}
}

func TestGPUsOfGardenerBecomeNVIDIAGPUs(t *testing.T) {
	for capacity, want := range map[string]string{
		"gpu: '0'": "", "gpu: '2'": "2", "gpu: '2', nvidia.com/gpu: '3'": "3", "cpu: '1'": "",
	} {
		class := machineSapcloud{}.Convert(RoleClass, read(t, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineClass, "+
			"metadata: {name: a}, provider: Azure, providerSpec: {}, nodeTemplate: {capacity: {"+capacity+"}}}"), nil).Class
		got, found := class.Capacity.Resources["nvidia.com/gpu"]
		if _, own := class.Capacity.Resources["gpu"]; own || found != (want != "") || found && got.String() != want {
			t.Errorf("%s becomes %v", capacity, class.Capacity.Resources)
		}
	}
}

func TestShortestTimeoutOfConditionCounts(t *testing.T) {
	var findings []provider.Finding
	all := nodeConditions{fields: newFields(nil, "", &findings), name: "x"}
	for _, d := range []time.Duration{3, 2, 4} {
		all.add("Ready", d, "Unknown")
	}
	if len(all.list) != 1 || all.list[0].Timeout.Duration != 2 || len(findings) > 0 {
		t.Errorf("%v %v", all.list, findings)
	}
}
