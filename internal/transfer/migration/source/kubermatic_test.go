package source

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

func read(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return object
}

func codes(c Converted) (all []string) {
	for _, f := range c.Findings {
		all = append(all, strings.Join([]string{string(f.Level), f.Code, f.Path}, " "))
	}
	return all
}

// Rule: migration-names-fit.
func TestShortNamesAreValidAndUnique(t *testing.T) {
	long := strings.Repeat("a", 60)
	names := map[string]string{}
	for _, name := range []string{"short", long, long + "b", long[:58] + "-" + "cc", "a.b", "a-b", "a.b.", strings.Repeat("x.", 100)} {
		short := shortName(name, 57)
		if problems := validation.IsDNS1123Label(short); len(problems) > 0 || len(short) > 57 {
			t.Errorf("%s becomes %s: %v", name, short, problems)
		}
		if other, taken := names[short]; taken {
			t.Errorf("%s and %s both become %s", name, other, short)
		}
		names[short] = name
		if again := shortName(name, 57); again != short {
			t.Errorf("%s becomes %s, and then %s", name, short, again)
		}
		if fits := len(name) <= 57 && !strings.Contains(name, "."); fits != (short == name) {
			t.Errorf("%s becomes %s", name, short)
		}
	}
}

const smallDeployment = `
apiVersion: cluster.k8s.io/v1alpha1
kind: MachineDeployment
metadata: {name: small, namespace: kube-system}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {providerSpec: {valueFrom: {machineClass: {name: small}}}}
`

// Rule: migration-states-old-defaults.
func TestDefaultsOfClusterK8sAreExplicit(t *testing.T) {
	spec := clusterK8s{}.Convert(RoleDeployment, read(t, smallDeployment), nil).Object.(*v1beta1.MachineDeployment).Spec
	if spec.Replicas == nil || *spec.Replicas != 1 ||
		spec.RevisionHistoryLimit == nil || *spec.RevisionHistoryLimit != 1 ||
		spec.ProgressDeadline == nil || spec.ProgressDeadline.Duration != 600*time.Second ||
		spec.DeletePolicy != v1beta1.DeleteNewest || spec.Strategy.Type != v1beta1.StrategyRollingUpdate ||
		spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 1 || spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("the defaults are %+v", spec)
	}
	timeouts := spec.Template.Spec.Timeouts
	if timeouts.Creation == nil || timeouts.Creation.Duration != 24*time.Hour ||
		timeouts.Drain == nil || timeouts.Drain.Duration != 2*time.Hour {
		t.Errorf("the timeouts are %+v", timeouts)
	}
}

// Rule: migration-flags-and-annotations-count.
func TestTimeoutsOfClusterK8s(t *testing.T) {
	const annotation = "machine-controller.kubermatic.io/skip-eviction-after"
	tests := []struct {
		name             string
		flags            Flags
		object, template string
		creation, drain  time.Duration
		blocked          bool
	}{
		{name: "none", creation: 24 * time.Hour, drain: 2 * time.Hour},
		{name: "flags", flags: Flags{"join-cluster-timeout": "25m", "skip-eviction-after": "1h"}, creation: 25 * time.Minute, drain: time.Hour},
		{name: "no timeout by flag", flags: Flags{"join-cluster-timeout": "0s"}, creation: 24 * time.Hour, drain: 2 * time.Hour},
		{name: "annotation over flag", flags: Flags{"skip-eviction-after": "1h"}, object: "30m", creation: 24 * time.Hour, drain: 30 * time.Minute},
		{name: "template over deployment", object: "30m", template: "0s", creation: 24 * time.Hour},
		{name: "not a duration", object: "soon", template: "-1s", creation: 24 * time.Hour, drain: 2 * time.Hour},
		{name: "flag without a duration", flags: Flags{"skip-eviction-after": "1 hour"}, creation: 24 * time.Hour, drain: 2 * time.Hour, blocked: true},
		{name: "negative flag", flags: Flags{"join-cluster-timeout": "-1s"}, creation: 24 * time.Hour, drain: 2 * time.Hour, blocked: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := read(t, smallDeployment)
			for value, path := range map[string][]string{
				test.object:   {"metadata", "annotations", annotation},
				test.template: {"spec", "template", "metadata", "annotations", annotation},
			} {
				if value != "" {
					if err := unstructured.SetNestedField(old.Object, value, path...); err != nil {
						t.Fatal(err)
					}
				}
			}
			c := clusterK8s{}.Convert(RoleDeployment, old, test.flags)
			got := c.Object.(*v1beta1.MachineDeployment).Spec.Template.Spec.Timeouts
			if got.Creation.Duration != test.creation || got.Drain.Duration != test.drain || c.HasBlocker() != test.blocked {
				t.Errorf("creation %s, drain %s, %v", got.Creation.Duration, got.Drain.Duration, codes(c))
			}
		})
	}
}

// Rule: migration-replaces-no-more-than-before.
func TestChecksOfClusterK8sReplaceNothing(t *testing.T) {
	for _, old := range sources.Samples(provider.SourceClusterK8s)["healthy"] {
		c := clusterK8s{}.Convert(roleOf(t, clusterK8s{}, old), old, nil)
		// The health check of a deployment also selects the machines of its sets.
		want := old.GetKind() == "MachineDeployment" || old.GetKind() == "MachineSet" && old.GetOwnerReferences() == nil
		if want != (c.HealthCheck != nil) {
			t.Errorf("%s %s: the check is %v", old.GetKind(), old.GetName(), c.HealthCheck)
		}
		if c.HealthCheck != nil && c.HealthCheck.Spec.Remediation.Type != v1beta1.RemediationNone {
			t.Errorf("%s %s: the remediation is %s", old.GetKind(), old.GetName(), c.HealthCheck.Spec.Remediation.Type)
		}
	}
}

// Rule: migration-acts-on-annotations-later.
func TestAnnotationsOfClusterK8sArePostponed(t *testing.T) {
	old := read(t, `
apiVersion: cluster.k8s.io/v1alpha1
kind: Machine
metadata:
  name: a
  namespace: kube-system
  annotations:
    cluster.k8s.io/delete-machine: "yes"
    cluster.x-k8s.io/paused: ""
    machine-controller.kubermatic.io/initializers: ipam
    machinist.dev/force-delete: ""
spec: {providerSpec: {valueFrom: {machineClass: {name: small}}}}
`)
	c := clusterK8s{}.Convert(RoleMachine, old, nil)
	if annotations := c.Object.GetAnnotations(); len(annotations) > 0 {
		t.Errorf("Machinist would act on %v at once", annotations)
	}
	if diff := cmp.Diff(map[string]string{
		v1beta1.AnnotationDeleteMachine:    "true",
		v1beta1.AnnotationPaused:           "true",
		v1beta1.AnnotationClusterAPIPaused: "",
	}, c.LaterAnnotations); diff != "" {
		t.Error(diff)
	}
	if !reports(c, "metadata.annotations.machinist.dev/force-delete") {
		t.Errorf("an annotation is lost without a finding: %v", codes(c))
	}
	// The old system ignores empty values of these annotations.
	for _, key := range []string{"cluster.k8s.io/delete-machine", "machine-controller.kubermatic.io/initializers"} {
		_ = unstructured.SetNestedField(old.Object, "", "metadata", "annotations", key)
	}
	if later := (clusterK8s{}).Convert(RoleMachine, old, nil).LaterAnnotations; len(later) != 1 {
		t.Errorf("the postponed annotations are %v", later)
	}
}

// Rule: migration-resolves-variables.
func TestVariables(t *testing.T) {
	const whole = "{namespace: ns, name: s, key: k}"
	tests := []struct {
		name, variable string
		want           any
		from           *KeyRef
		findings       []string
	}{
		{name: "plain", variable: "x", want: "x"},
		{name: "literal", variable: "{value: x}", want: "x"},
		{name: "literal of another type", variable: "{value: true}", want: true},
		{name: "empty literal", variable: `{value: ""}`, want: ""},
		{name: "empty map", variable: "{}", want: map[string]any{}},
		{name: "a map with another key", variable: "{value: x, other: z}", want: map[string]any{"value": "x", "other": "z"}},
		{name: "Secret", variable: "{secretKeyRef: " + whole + "}", from: &KeyRef{"Secret", "ns", "s", "k"}},
		{name: "ConfigMap", variable: "{configMapKeyRef: " + whole + "}", from: &KeyRef{"ConfigMap", "ns", "s", "k"}},
		{name: "Secret before literal", variable: "{value: x, secretKeyRef: " + whole + "}", from: &KeyRef{"Secret", "ns", "s", "k"}},
		{name: "Secret before ConfigMap", variable: "{configMapKeyRef: {namespace: ns, name: other, key: k}, secretKeyRef: " + whole + "}",
			from: &KeyRef{"Secret", "ns", "s", "k"}},
		{name: "incomplete reference and literal", variable: "{value: x, secretKeyRef: {name: s}}", want: "x"},
		{name: "incomplete reference", variable: "{secretKeyRef: {name: s, key: k}}",
			findings: []string{"Note FromEnvironment spec.providerConfig.cloudProviderSpec.deep[0].v"}},
		{name: "no literal", variable: "{value: null}",
			findings: []string{"Note FromEnvironment spec.providerConfig.cloudProviderSpec.deep[0].v"}},
		{name: "object as literal", variable: "{value: {}}",
			findings: []string{"Blocker WrongType spec.providerConfig.cloudProviderSpec.deep[0].v.value"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			system := machineK8s{provider.SourceMachineK8s}
			c := system.Convert(RoleMachine, read(t, `
apiVersion: machine.k8s.io/v1alpha1
kind: Machine
metadata: {name: a}
spec: {providerConfig: {cloudProvider: azure, cloudProviderSpec: {deep: [{v: `+test.variable+`}]}}}
`), nil)
			findings := codes(c)[1:] // without the note on the creation timeout
			if diff := cmp.Diff(append([]string{}, test.findings...), append([]string{}, findings...)); diff != "" {
				t.Error(diff)
			}
			got := c.Class.Spec["deep"].([]any)[0].(map[string]any)["v"]
			if test.from != nil {
				if diff := cmp.Diff([]Value{{Path: []string{"deep", "0", "v"}, From: *test.from}}, c.Class.Values); diff != "" {
					t.Error(diff)
				}
			} else if diff := cmp.Diff(test.want, got); diff != "" || len(c.Class.Values) > 0 {
				t.Error(diff, c.Class.Values)
			}
		})
	}
}

func TestNameOfClassDependsOnItsReferences(t *testing.T) {
	class := func(key string) *Class {
		return (machineK8s{provider.SourceMachineK8s}).Convert(RoleMachine, read(t, `
apiVersion: machine.k8s.io/v1alpha1
kind: Machine
metadata: {name: a}
spec: {providerConfig: {cloudProvider: azure, cloudProviderSpec: {v: {secretKeyRef: {namespace: ns, name: s, key: `+key+`}}}}}
`), nil).Class
	}
	if class("a").ContentName("x") == class("b").ContentName("x") {
		t.Error("descriptions with different credentials have the same class")
	}
	if first, second := class("a").ContentName("x"), class("a").ContentName("x"); first != second {
		t.Error("equal descriptions have different classes")
	}
}

func TestSameInstances(t *testing.T) {
	classes := map[string]*Class{}
	for _, old := range sources.Samples(provider.SourceClusterK8s)["healthy"] {
		classes[old.GetName()] = clusterK8s{}.Convert(roleOf(t, clusterK8s{}, old), old, nil).Class
	}
	set, machine := classes["general-5f94495bd9"], classes["general-5f94495bd9-x7k2p"]
	if !set.SameInstances(classes["general"]) || !machine.SameInstances(set) {
		t.Error("the machine, its set and its deployment do not have the same instances")
	}
	if other := classes["alone"]; other.UserData != nil || set.UserData == nil {
		t.Error("the user data is not that of the deployment")
	}
	machine.Spec["vmSize"] = "other"
	if machine.SameInstances(set) {
		t.Error("an instance of another size is the same")
	}
}

// Rule: migration-one-controller.
func TestControllerOfAnotherSystemIsBlocker(t *testing.T) {
	for owner, want := range map[string]string{
		"{apiVersion: apps.example.com/v1, kind: Pool, name: p, controller: true}":           "Blocker OtherController metadata.ownerReferences[0].controller",
		"{apiVersion: apps.example.com/v1, kind: Pool, name: p}":                             "Loss OtherOwner metadata.ownerReferences[0].name",
		"{apiVersion: cluster.k8s.io/v1alpha1, kind: MachineSet, name: s, controller: true}": "",
		"{apiVersion: cluster.k8s.io/v1alpha1, kind: Cluster, name: c}":                      "",
	} {
		c := clusterK8s{}.Convert(RoleMachine, read(t, `
apiVersion: cluster.k8s.io/v1alpha1
kind: Machine
metadata: {name: a, namespace: kube-system, ownerReferences: [`+owner+`]}
spec: {providerSpec: {valueFrom: {machineClass: {name: small}}}}
`), nil)
		if got := strings.Join(codes(c), ", "); got != want {
			t.Errorf("%s: %s", owner, got)
		}
	}
}

// Rule: migration-loses-nothing-silently.
func TestPanicOfConversionIsBlocker(t *testing.T) {
	c := convert(read(t, "{apiVersion: v1, kind: Machine}"), func(*fields, *Converted) { panic("a secret") })
	if diff := cmp.Diff([]string{"Blocker ConversionFailed "}, codes(c)); diff != "" || strings.Contains(c.Findings[0].Message, "secret") {
		t.Error(diff, c.Findings)
	}
}
