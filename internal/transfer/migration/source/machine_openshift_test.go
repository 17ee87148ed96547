package source

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

const openshiftInstance = "providerSpec: {value: {kind: AzureMachineProviderSpec, userDataSecret: {name: u}}}"

// openshift returns an OpenShift object. metadata and spec are in YAML's flow style.
func openshift(t *testing.T, kind, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	return read(t, fmt.Sprintf("{apiVersion: machine.openshift.io/v1beta1, kind: %s, metadata: {name: a, namespace: ns, %s}, spec: {%s}}",
		kind, metadata, spec))
}

// openshiftMachines returns a set. The settings are in the machine spec of its template.
func openshiftMachines(t *testing.T, metadata, settings string) *unstructured.Unstructured {
	t.Helper()
	return openshift(t, "MachineSet", metadata, "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {"+
		openshiftInstance+", "+settings+"}}")
}

func withoutNotes(c Converted) string {
	return strings.Join(slices.DeleteFunc(codes(c), func(f string) bool { return strings.HasPrefix(f, "Note") }), ", ")
}

// Rules: migration-states-old-defaults, migration-replaces-no-more-than-before.
func TestDefaultsOfOpenShiftAreExplicit(t *testing.T) {
	c := machineOpenShift{}.Convert(RoleSet, openshiftMachines(t, "", ""), nil)
	data, err := yaml.Marshal(map[string]any{"set": c.Object.(*v1beta1.MachineSet).Spec, "check": c.HealthCheck.Spec})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`check:
  remediation:
    type: None
  selector:
    matchLabels:
      a: b
set:
  deletePolicy: Random
  remediation:
    maxInFlight: 100%
  replicas: 1
  selector:
    matchLabels:
      a: b
  template:
    metadata:
      labels:
        a: b
    spec:
      timeouts:
        creation: 24h0m0s
        drain: 99999h0m0s
`, string(data)); diff != "" {
		t.Error(diff)
	}
	if c.HealthCheck.Name == c.Object.GetName() {
		t.Error("the check has the name that a user may have given to another check of the set")
	}
}

// Rule: migration-states-old-defaults.
func TestTimeoutsOfOpenShift(t *testing.T) {
	for settings, want := range map[string]string{
		"":                                  "99999h0m0s <nil> ",
		"nodeDrainTimeoutSeconds: 0":        "99999h0m0s <nil> ",
		"nodeDrainTimeoutSeconds: 90":       "1m30s <nil> ",
		"nodeVolumeDetachTimeoutSeconds: 0": "99999h0m0s 99999h0m0s ",
		"nodeVolumeDetachTimeoutSeconds: 9": "99999h0m0s 9s ",
		"nodeDeletionTimeoutSeconds: 0":     "99999h0m0s <nil> Loss NotSupported spec.nodeDeletionTimeoutSeconds",
		"nodeDrainTimeoutSeconds: -1":       "99999h0m0s <nil> Blocker InvalidValue spec.nodeDrainTimeoutSeconds",
	} {
		c := machineOpenShift{}.Convert(RoleMachine, openshift(t, "Machine", "", openshiftInstance+", "+settings), nil)
		timeouts := c.Object.(*v1beta1.Machine).Spec.Timeouts
		detach := "<nil>"
		if timeouts.VolumeDetach != nil {
			detach = timeouts.VolumeDetach.Duration.String()
		}
		if got := fmt.Sprint(timeouts.Drain.Duration, " ", detach, " ", withoutNotes(c)); got != want {
			t.Errorf("%s: %s", settings, got)
		}
	}
}

// Rule: migration-health-as-before.
func TestHealthChecksOfOpenShift(t *testing.T) {
	const selector, conditions = "selector: {matchLabels: {a: b}}, ", "unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m}]"
	const want = "nodeStartupTimeout: 10m0s, maxUnhealthy: 100%, remediation: {type: Replace}, "
	const ready = "unhealthyNodeConditions: [{type: Ready, status: Unknown, timeout: 5m0s}]"
	tests := []struct{ name, annotations, spec, want, findings string }{
		{name: "defaults", spec: selector + conditions, want: selector + want + ready},
		{name: "bounds", spec: selector + conditions + ", maxUnhealthy: 3, nodeStartupTimeout: 1.5h",
			want: selector + ready + ", nodeStartupTimeout: 1h30m0s, maxUnhealthy: 3, remediation: {type: Replace}"},
		{name: "no startup timeout, nothing replaced", spec: selector + conditions + ", maxUnhealthy: 0%, nodeStartupTimeout: '0'",
			want: selector + ready + ", maxUnhealthy: 0%, remediation: {type: Replace}"},
		{name: "all machines", spec: "selector: {}, " + conditions, want: "selector: {}, " + want + ready},
		{name: "no selector", spec: conditions, want: "selector: {}, " + want + ready,
			findings: "Blocker MissingField spec.selector"},
		{name: "a label that Machinist's machines do not have", spec: "selector: {matchExpressions: [{key: machine.openshift.io/zone, operator: Exists}]}, " + conditions,
			want:     "selector: {matchExpressions: [{key: machine.openshift.io/zone, operator: Exists}]}, " + want + ready,
			findings: "Blocker NotSupported spec.selector"},
		{name: "external", spec: selector + conditions + ", remediationTemplate: {kind: A, name: b}",
			want:     selector + ready + ", nodeStartupTimeout: 10m0s, maxUnhealthy: 100%, remediation: {type: External}",
			findings: "Loss ExternalRemediation spec.remediationTemplate"},
		{name: "external by annotation", annotations: "machine.openshift.io/remediation-strategy: external-baremetal",
			spec: selector + conditions, want: selector + ready + ", nodeStartupTimeout: 10m0s, maxUnhealthy: 100%, remediation: {type: External}",
			findings: "Loss ExternalRemediation metadata.annotations.machine.openshift.io/remediation-strategy"},
		{name: "paused", annotations: "cluster.x-k8s.io/paused: ''", spec: selector + conditions,
			want: selector + ready + ", nodeStartupTimeout: 10m0s, maxUnhealthy: 100%, remediation: {type: None}"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := openshift(t, "MachineHealthCheck", "annotations: {"+test.annotations+"}", test.spec)
			c := machineOpenShift{}.Convert(RoleHealthCheck, old, nil)
			var want v1beta1.MachineHealthCheckSpec
			if err := yaml.UnmarshalStrict([]byte("{"+test.want+"}"), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, c.Object.(*v1beta1.MachineHealthCheck).Spec); diff != "" {
				t.Error(diff)
			}
			if len(c.Object.GetAnnotations()) > 0 {
				t.Errorf("the check has the annotations %v", c.Object.GetAnnotations())
			}
			if got := withoutNotes(c); got != test.findings {
				t.Errorf("the findings are %s", got)
			}
		})
	}
}

// Rule: migration-hooks-come-over.
func TestHooksGetADomain(t *testing.T) {
	many := make([]string, maxHooks+1)
	for i := range many {
		many[i] = fmt.Sprintf("{name: h%d.example.com, owner: o}", i)
	}
	for hooks, want := range map[string]string{
		"{name: backup.example.com, owner: o}":                   "backup.example.com ",
		"{name: example.com/Backup, owner: o}":                   "example.com/Backup ",
		"{name: Backup, owner: o}":                               "machine.openshift.io/Backup Loss HookRenamed spec.lifecycleHooks.preDrain[0].name",
		"{name: short/Backup, owner: o}":                         "machine.openshift.io/short.Backup Loss HookRenamed spec.lifecycleHooks.preDrain[0].name",
		"{name: a.b, owner: o}, {name: a.b}":                     "a.b Blocker MissingField spec.lifecycleHooks.preDrain[1].name",
		"{name: a.b, owner: o}, {name: a.b, owner: o}":           "a.b Blocker InvalidValue spec.lifecycleHooks.preDrain[1].name",
		"{name: a.b/" + strings.Repeat("c", 250) + ", owner: o}": " Blocker InvalidValue spec.lifecycleHooks.preDrain[0].name",
		"{name: a.b, owner: " + strings.Repeat("c", 254) + "}":   " Blocker InvalidValue spec.lifecycleHooks.preDrain[0].owner",
	} {
		c := machineOpenShift{}.Convert(RoleMachine, openshift(t, "Machine", "", openshiftInstance+", lifecycleHooks: {preDrain: ["+hooks+"]}"), nil)
		names := ""
		for _, hook := range c.Object.(*v1beta1.Machine).Spec.LifecycleHooks.PreDrain {
			names += hook.Name + " "
		}
		if got := strings.TrimLeft(names+withoutNotes(c), " "); got != strings.TrimLeft(want, " ") {
			t.Errorf("%s: %s", hooks, got)
		}
	}
	c := machineOpenShift{}.Convert(RoleMachine, openshift(t, "Machine", "",
		openshiftInstance+", lifecycleHooks: {preTerminate: ["+strings.Join(many, ", ")+"]}"), nil)
	if n := len(c.Object.(*v1beta1.Machine).Spec.LifecycleHooks.PreTerminate); n != maxHooks || !c.HasBlocker() {
		t.Errorf("%d hooks, %s", n, withoutNotes(c))
	}
}

// Rule: migration-acts-on-annotations-later.
func TestAnnotationsOfOpenShiftArePostponed(t *testing.T) {
	for annotations, want := range map[string]map[string]string{
		"": {},
		"machine.openshift.io/delete-machine: ''":              {},
		"machine.openshift.io/delete-machine: 'no'":            {v1beta1.AnnotationDeleteMachine: "true"},
		"machine.openshift.io/cluster-api-delete-machine: 'y'": {v1beta1.AnnotationDeleteMachine: "true"},
		"machine.openshift.io/exclude-node-draining: ''":       {v1beta1.AnnotationSkipDrain: "true"},
	} {
		old := openshift(t, "Machine", "annotations: {"+annotations+"}", openshiftInstance)
		c := machineOpenShift{}.Convert(RoleMachine, old, nil)
		if len(c.Object.GetAnnotations()) > 0 {
			t.Errorf("%s: the machine already has %v", annotations, c.Object.GetAnnotations())
		}
		if diff := cmp.Diff(want, c.LaterAnnotations); diff != "" {
			t.Errorf("%s: %s", annotations, diff)
		}
	}
}

// Rule: migration-control-planes-stay.
func TestControlPlanesAreNotConverted(t *testing.T) {
	for _, old := range sources.Samples(provider.SourceOpenShift)["control-plane"] {
		c := machineOpenShift{}.Convert(roleOf(t, machineOpenShift{}, old), old, nil)
		if diff := cmp.Diff([]string{"Note ControlPlane metadata"}, codes(c)); diff != "" {
			t.Errorf("%s %s: %s", old.GetKind(), old.GetName(), diff)
		}
		if c.Object != nil || c.Class != nil || c.HealthCheck != nil || c.Machine != nil || len(c.LaterAnnotations) > 0 {
			t.Errorf("%s %s is converted: %+v", old.GetKind(), old.GetName(), c)
		}
	}
}

// Rule: migration-operators-keep-their-objects.
func TestObjectsOfOperatorsOfOpenShift(t *testing.T) {
	const termination = "selector: {matchLabels: {machine.openshift.io/interruptible-instance: ''}}, " +
		"maxUnhealthy: 100%, nodeStartupTimeout: '0', unhealthyConditions: [{type: Terminating, status: 'True', timeout: 0s}]"
	const conditions = "selector: {matchLabels: {a: b}}, " +
		"unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m}]"
	const hive = "labels: {hive.openshift.io/managed: 'true'}"
	for _, test := range []struct {
		name, want, restorer string
		role                 Role
		old                  *unstructured.Unstructured
	}{
		{"termination handler", "Note OperatorOwned metadata", "the cluster-version operator", RoleHealthCheck,
			renamed(openshift(t, "MachineHealthCheck", "", termination), "machine-api-termination-handler")},
		{"check of the release", "Note OperatorOwned metadata", "the cluster-version operator", RoleHealthCheck,
			openshift(t, "MachineHealthCheck", "annotations: {include.release.openshift.io/any: 'true'}", conditions)},
		{"check of Hive", "Note OperatorOwned metadata", "Hive", RoleHealthCheck,
			openshift(t, "MachineHealthCheck", hive, conditions)},
		{"check of the user", "Note ControlPlane spec.selector", "", RoleHealthCheck,
			openshift(t, "MachineHealthCheck", "", conditions)},
		{"set of Hive", "Blocker OtherController metadata", "Hive", RoleSet, openshiftMachines(t, hive, "")},
		{"machine of Hive", "Blocker OtherController metadata", "Hive", RoleMachine,
			openshift(t, "Machine", hive, openshiftInstance)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := machineOpenShift{}.Convert(test.role, test.old, nil)
			if i := slices.Index(codes(c), test.want); i < 0 || !strings.Contains(c.Findings[i].Message, test.restorer) {
				t.Errorf("the findings are %+v, want %s with %q", c.Findings, test.want, test.restorer)
			}
			if leftBehind := strings.Contains(test.want, CodeOperatorOwned); leftBehind != (c.Object == nil) ||
				leftBehind && len(c.Findings) != 1 {
				t.Errorf("the object is converted to %v with the findings %+v", c.Object, c.Findings)
			}
		})
	}
}

func renamed(object *unstructured.Unstructured, name string) *unstructured.Unstructured {
	object.SetName(name)
	return object
}

// Rule: migration-one-controller.
func TestObjectsOfTheClusterAPIOfOpenShiftAreBlockers(t *testing.T) {
	for _, test := range []struct{ spec, status, want string }{
		{"", "", ""},
		{"MachineAPI", "MachineAPI", "Loss AuthoritativeAPI spec.authoritativeAPI"},
		{"ClusterAPI", "MachineAPI", "Blocker AuthoritativeAPI spec.authoritativeAPI"},
		{"MachineAPI", "ClusterAPI", "Blocker AuthoritativeAPI status.authoritativeAPI"},
		{"MachineAPI", "Migrating", "Blocker AuthoritativeAPI status.authoritativeAPI"},
	} {
		for role, old := range map[Role]*unstructured.Unstructured{
			RoleMachine: openshift(t, "Machine", "", openshiftInstance), RoleSet: openshiftMachines(t, "", ""),
		} {
			_ = unstructured.SetNestedField(old.Object, test.spec, "spec", "authoritativeAPI")
			_ = unstructured.SetNestedField(old.Object, test.status, "status", "authoritativeAPI")
			if got := withoutNotes(machineOpenShift{}.Convert(role, old, nil)); got != test.want {
				t.Errorf("%s of %+v: %s", role, test, got)
			}
		}
	}
}

// Rule: migration-reads-what-is-in-flight.
func TestStateOfOpenShiftMachines(t *testing.T) {
	want := map[string]Machine{"creating": {}, "deleting": {Deleting: true, NodeName: "deleting"},
		"failed": {Failed: true, NodeName: "failed"}}
	for _, old := range sources.Samples(provider.SourceOpenShift)["in-flight"] {
		got := machineOpenShift{}.Convert(RoleMachine, old, nil).Machine
		if expected, listed := want[old.GetName()]; !listed || !reflect.DeepEqual(*got, expected) {
			t.Errorf("%s is %+v", old.GetName(), got)
		}
	}
}

// Rule: migration-loses-nothing-silently.
func TestInstancesOfOpenShift(t *testing.T) {
	const user = "userDataSecret: {name: u}"
	secret := &KeyRef{"Secret", "ns", "u", "userData"}
	tests := []struct {
		value       string
		credentials []types.NamespacedName
		userData    *KeyRef
		findings    string
	}{
		{value: "kind: K, " + user, userData: secret},
		{value: "kind: K, credentialsSecret: {name: c}, " + user, userData: secret,
			credentials: []types.NamespacedName{{Namespace: "ns", Name: "c"}}},
		{value: "kind: K, credentialsSecret: {name: c, namespace: other}, userDataSecret: {name: u, namespace: other}",
			credentials: []types.NamespacedName{{Namespace: "other", Name: "c"}},
			userData:    &KeyRef{"Secret", "other", "u", "userData"}},
		// OpenStack and libvirt have other names for these fields.
		{value: "kind: K, cloudsSecret: {name: c}, " + user, userData: secret,
			credentials: []types.NamespacedName{{Namespace: "ns", Name: "c"}}},
		{value: "kind: K, ignition: {userDataSecret: u}", userData: secret},
		{value: "kind: K, ignition: null, cloudInit: {userDataSecret: u, sshAccess: true}", userData: secret},
		{value: "kind: K, ignition: {userDataSecret: ''}", findings: "Loss UserData spec.providerSpec.value.userDataSecret"},
		{value: "kind: K", findings: "Loss UserData spec.providerSpec.value.userDataSecret"},
	}
	for _, test := range tests {
		old := openshift(t, "Machine", "", "providerSpec: {value: {"+test.value+"}}")
		c := machineOpenShift{}.Convert(RoleMachine, old, nil)
		var spec map[string]any
		if err := yaml.Unmarshal([]byte("{"+test.value+"}"), &spec); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&Class{Provider: "K", Spec: spec, Path: "spec.providerSpec.value", Credentials: test.credentials,
			UserData: test.userData}, c.Class); diff != "" {
			t.Errorf("%s: %s", test.value, diff)
		}
		if got := withoutNotes(c); got != test.findings {
			t.Errorf("%s: %s", test.value, got)
		}
	}
	for metadata, want := range map[string]string{
		"": "map[]",
		"annotations: {machine.openshift.io/vCPU: '4', machine.openshift.io/GPU: '0'}":            "map[cpu:4]",
		"annotations: {machine.openshift.io/memoryMb: '512', machine.openshift.io/maxPods: '-1'}": "map[memory:512Mi]",
	} {
		class := machineOpenShift{}.Convert(RoleSet, openshiftMachines(t, metadata, ""), nil).Class
		got := map[string]string{}
		if class.Capacity != nil {
			for name, quantity := range class.Capacity.Resources {
				got[string(name)] = quantity.String()
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v", metadata, got)
		}
	}
}
