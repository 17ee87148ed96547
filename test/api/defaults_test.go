package api

import (
	"maps"
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests"
)

func TestDefaults(t *testing.T) {
	timeouts := map[string]any{"creation": "20m", "update": "20m", "drain": "2h", "volumeDetach": "5m"}
	for _, test := range []struct {
		name    string
		sample  string
		changes []change
		path    []string
		want    any
	}{
		{"adoption", class, nil, []string{"spec", "adoption"}, "Forbid"},
		{"key of user data", class, []change{{"spec/userDataRef", ref("boot")}}, []string{"spec", "userDataRef", "key"},
			"userData"},
		{"timeouts", machine, nil, []string{"spec", "timeouts"}, timeouts},
		{"timeouts with drain set", machine, []change{{"spec/timeouts/drain", "1h"}}, []string{"spec", "timeouts"},
			map[string]any{"creation": "20m", "update": "20m", "drain": "1h", "volumeDetach": "5m"}},
		{"providerID", machine, nil, []string{"spec", "providerID"}, nil},
		{"timeouts in a template", set, nil, []string{"spec", "template", "spec", "timeouts"}, timeouts},
		{"replicas of a set", set, nil, []string{"spec", "replicas"}, nil},
		{"replicas of a set with 0", set, []change{{"spec/replicas", 0}}, []string{"spec", "replicas"}, int64(0)},
		{"delete policy of a set", set, nil, []string{"spec", "deletePolicy"}, "Random"},
		{"replicas of a deployment", deployment, nil, []string{"spec", "replicas"}, nil},
		{"delete policy of a deployment", deployment, nil, []string{"spec", "deletePolicy"}, "Random"},
		{"strategy", deployment, nil, []string{"spec", "strategy"}, map[string]any{"type": "RollingUpdate"}},
		{"empty rolling update", deployment, []change{{"spec/strategy/rollingUpdate", map[string]any{}}},
			[]string{"spec", "strategy", "rollingUpdate"},
			map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)}},
		{"partition of a rolling update", deployment, []change{{"spec/strategy/rollingUpdate/partition", 2}},
			[]string{"spec", "strategy", "rollingUpdate"},
			map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0), "partition": int64(2)}},
		{"empty inPlace", deployment, []change{{"spec/strategy/inPlace", map[string]any{}}},
			[]string{"spec", "strategy", "inPlace"},
			map[string]any{"maxUnavailable": int64(1), "orchestration": "Auto"}},
		{"history", deployment, nil, []string{"spec", "revisionHistoryLimit"}, int64(10)},
		{"progress deadline", deployment, nil, []string{"spec", "progressDeadline"}, "10m"},
		{"remediation of a deployment", deployment, nil, []string{"spec", "remediation"},
			map[string]any{"maxInFlight": int64(1)}},
		{"empty remediation of a set", set, []change{{"spec/remediation", map[string]any{}}},
			[]string{"spec", "remediation"}, map[string]any{"maxInFlight": int64(1)}},
		{"maxUnhealthy", healthCheck, nil, []string{"spec", "maxUnhealthy"}, "40%"},
		{"remediation of a check", healthCheck, nil, []string{"spec", "remediation"}, map[string]any{"type": "Replace"}},
		{"replicas of a provider", manifests.Provider, nil, []string{"spec", "replicas"}, int64(2)},
		{"image of a provider", manifests.Provider, nil, []string{"spec", "image"}, nil},
		{"key of a kubeconfig", manifests.Provider, []change{{"spec/target/kubeconfigSecretRef", ref("target")}},
			[]string{"spec", "target", "kubeconfigSecretRef", "key"}, "kubeconfig"},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := apply(t, parse(t, "default", test.sample), test.changes...)
			if err := tryCreate(t, object); err != nil {
				t.Fatalf("refused: %v", err)
			}
			got, _, err := unstructured.NestedFieldNoCopy(object.Object, test.path...)
			if err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Rule: defaults-as-in-code.
func TestGoDefaultsEqualSchemaDefaults(t *testing.T) {
	var persisted machinistv1.MachineDeployment
	get(t, deployment, &persisted,
		change{"spec/strategy", map[string]any{"rollingUpdate": map[string]any{}, "inPlace": map[string]any{}}})
	var check machinistv1.MachineHealthCheck
	get(t, healthCheck, &check)
	var machineSet machinistv1.MachineSet
	get(t, set, &machineSet)
	var process machinistv1.Provider
	get(t, manifests.Provider, &process, change{"metadata/name", "stored"})
	var empty machinistv1.MachineDeployment

	persistedTimeouts, emptyTimeouts := persisted.Spec.Template.Spec.Timeouts, machinistv1.MachineTimeouts{}
	for name, pair := range map[string][2]any{
		"creation":              {persistedTimeouts.Creation.Duration, emptyTimeouts.CreationOrDefault()},
		"update":                {persistedTimeouts.Update.Duration, emptyTimeouts.UpdateOrDefault()},
		"drain":                 {persistedTimeouts.Drain.Duration, emptyTimeouts.DrainOrDefault()},
		"volumeDetach":          {persistedTimeouts.VolumeDetach.Duration, emptyTimeouts.VolumeDetachOrDefault()},
		"deletePolicy":          {persisted.Spec.DeletePolicy, empty.DeletePolicyOrDefault()},
		"deletePolicy of a set": {machineSet.Spec.DeletePolicy, new(machinistv1.MachineSet).DeletePolicyOrDefault()},
		"strategy":              {persisted.Spec.Strategy.Type, empty.Spec.Strategy.TypeOrDefault()},
		"maxSurge":              {*persisted.Spec.Strategy.RollingUpdate.MaxSurge, empty.Spec.Strategy.MaxSurgeOrDefault()},
		"maxUnavailable": {*persisted.Spec.Strategy.RollingUpdate.MaxUnavailable,
			empty.Spec.Strategy.MaxUnavailableOrDefault()},
		"inPlace": {*persisted.Spec.Strategy.InPlace.MaxUnavailable,
			empty.Spec.Strategy.InPlaceMaxUnavailableOrDefault()},
		"orchestration":         {persisted.Spec.Strategy.InPlace.Orchestration, empty.Spec.Strategy.OrchestrationOrDefault()},
		"revisionHistoryLimit":  {*persisted.Spec.RevisionHistoryLimit, empty.RevisionHistoryLimitOrDefault()},
		"progressDeadline":      {persisted.Spec.ProgressDeadline.Duration, empty.ProgressDeadlineOrDefault()},
		"maxInFlight":           {*persisted.Spec.Remediation.MaxInFlight, empty.Spec.Remediation.MaxInFlightOrDefault()},
		"maxUnhealthy":          {*check.Spec.MaxUnhealthy, new(machinistv1.MachineHealthCheck).MaxUnhealthyOrDefault()},
		"remediation":           {check.Spec.Remediation.Type, machinistv1.HealthCheckRemediation{}.TypeOrDefault()},
		"replicas of a process": {*process.Spec.Replicas, new(machinistv1.Provider).ReplicasOrDefault()},
		"key of a kubeconfig":   {machinistv1.DefaultKubeconfigKey, machinistv1.KubeconfigRef{}.KeyOrDefault()},
		"key":                   {machinistv1.DefaultUserDataKey, machinistv1.UserDataRef{}.KeyOrDefault()},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: the default is %v in the schema and %v in Go", name, pair[0], pair[1])
		}
	}
}

// The fields below are newer than the first stored objects. An object without them must get no default, because the
// controllers would then behave differently.
//
// Rule: defaults-as-in-code.
func TestOptionalHealthFieldsHaveNoDefaults(t *testing.T) {
	var check machinistv1.MachineHealthCheck
	get(t, healthCheck, &check)
	if check.Spec.UnhealthyRange != "" || check.Spec.UnhealthyMachineConditions != nil {
		t.Errorf("the check has %q and %v", check.Spec.UnhealthyRange, check.Spec.UnhealthyMachineConditions)
	}
	if r := check.Spec.Remediation; r.TemplateRef != nil || r.Timeout != nil || r.OnTimeout != "" {
		t.Errorf("the check has the remediation %+v", r)
	}
	var d machinistv1.MachineDeployment
	get(t, deployment, &d)
	if d.Spec.Template.Spec.Node.ReadinessGates != nil {
		t.Errorf("the template has readiness gates: %v", d.Spec.Template.Spec.Node.ReadinessGates)
	}
	drain := d.Spec.Template.Spec.Drain
	if drain.Rules != nil || drain.PodsWithVolumes != "" || drain.SingleReplicas != "" {
		t.Errorf("the template has rules for the drain: %+v", drain)
	}
}

func get(t *testing.T, sample string, into client.Object, changes ...change) {
	t.Helper()
	object := create(t, apply(t, parse(t, env.Namespace(t), sample), changes...))
	if err := env.Client(t).Get(t.Context(), client.ObjectKeyFromObject(object), into); err != nil {
		t.Fatal(err)
	}
}

func TestScale(t *testing.T) {
	c := env.Client(t)
	for _, test := range []struct {
		kind, sample string
		typed        client.Object
	}{
		{"MachineSet", set, &machinistv1.MachineSet{}},
		{"MachineDeployment", deployment, &machinistv1.MachineDeployment{}},
	} {
		t.Run(test.kind, func(t *testing.T) {
			object := create(t, apply(t, parse(t, env.Namespace(t), test.sample), change{"spec/replicas", 1}))
			test.typed.SetNamespace(object.GetNamespace())
			test.typed.SetName(object.GetName())
			apply(t, object, change{"status/replicas", 2}, change{"status/selector", "pool=a"})
			if err := c.Status().Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}

			scale := &autoscalingv1.Scale{}
			if err := c.SubResource("scale").Get(t.Context(), test.typed, scale); err != nil {
				t.Fatal(err)
			}
			if scale.Spec.Replicas != 1 || scale.Status.Replicas != 2 || scale.Status.Selector != "pool=a" {
				t.Errorf("got scale %+v %+v, want 1 of 2 replicas and selector pool=a", scale.Spec, scale.Status)
			}

			scale.Spec.Replicas = 5
			if err := c.SubResource("scale").Update(t.Context(), test.typed, client.WithSubResourceBody(scale)); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			if replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); replicas != 5 {
				t.Errorf("got spec.replicas %d after scaling, want 5", replicas)
			}

			for _, replicas := range []int32{-1, 100001} {
				scale.ResourceVersion, scale.Spec.Replicas = "", replicas
				err := c.SubResource("scale").Update(t.Context(), test.typed, client.WithSubResourceBody(scale))
				requireRejection(t, err, "spec.replicas")
			}
		})
	}
}

func TestColumns(t *testing.T) {
	namespace := env.Namespace(t)
	for plural, want := range map[string][]string{
		"machines": {"Name", "Phase", "Node", "Ready", "Up-to-date", "Version", "Age", "|", "ProviderID", "Class",
			"Zone", "Domain", "Internal-IP", "Last-Operation"},
		"machineclasses": {"Name", "Provider", "Ready", "Reason", "Age", "|", "Instance-Type", "Credentials"},
		"machinesets": {"Name", "Desired", "Replicas", "Ready", "Available", "Up-to-date", "Age", "|", "Class",
			"Version", "Frozen"},
		"machinedeployments": {"Name", "Desired", "Replicas", "Up-to-date", "Ready", "Available", "Age", "|", "Strategy",
			"Paused", "Revision", "Class", "Version", "Progressing"},
		"machinehealthchecks": {"Name", "Expected", "Healthy", "Max-Unhealthy", "Allowed", "Age", "|",
			"Remediation", "Unhealthy-Range", "Reason"},
		"machinedisruptionbudgets": {"Name", "Max-Disrupted", "Selected", "Disrupted", "Allowed", "Valid", "Age", "|",
			"Reasons", "Next-Change"},
		"providers": {"Name", "Type", "Version", "Available", "Progressing", "Degraded", "Age", "|", "Process",
			"Desired", "Reason"},
	} {
		in := namespace
		if plural == "providers" {
			in = ""
		}
		table := tableOf(t, in, plural)
		var narrow, wide []string
		for _, column := range table.ColumnDefinitions {
			if column.Priority == 0 {
				narrow = append(narrow, column.Name)
			} else {
				wide = append(wide, column.Name)
			}
		}
		if got := slices.Concat(narrow, []string{"|"}, wide); !slices.Equal(got, want) {
			t.Errorf("%s: got columns %v, want %v", plural, got, want)
		}
	}
}

// If the path of a column is wrong, its cell is empty. To detect this, the test sets a value for every column.
func TestMachineColumnsShowValues(t *testing.T) {
	object := create(t, apply(t, parse(t, env.Namespace(t), machine), change{"spec/providerID", "sim:///vm-1"},
		change{"metadata/labels", map[string]any{machinistv1.LabelPlacementDomain: "zone-a"}}))
	condition := func(name string) map[string]any {
		return map[string]any{"type": name, "status": "True", "reason": "Test", "message": "",
			"lastTransitionTime": "2026-08-01T12:00:00Z"}
	}
	apply(t, object, change{"status", map[string]any{
		"phase":   "Running",
		"nodeRef": ref("node-1"),
		"version": "v1.36.3",
		"addresses": []any{map[string]any{"type": "Hostname", "address": "vm-1"},
			map[string]any{"type": "InternalIP", "address": "10.0.0.1"}},
		"instance":      map[string]any{"zone": "zone-a"},
		"lastOperation": map[string]any{"type": "Create"},
		"conditions":    []any{condition("Ready"), condition("UpToDate")},
	}})
	if err := env.Client(t).Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	table := tableOf(t, object.GetNamespace(), "machines")
	got := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		if column.Name != "Age" {
			got[column.Name] = table.Rows[0].Cells[i]
		}
	}
	want := map[string]any{
		"Name": "one", "Phase": "Running", "Node": "node-1", "Ready": "True", "Up-to-date": "True", "Version": "v1.36.3",
		"ProviderID": "sim:///vm-1", "Class": "small", "Zone": "zone-a", "Domain": "zone-a",
		"Internal-IP": "10.0.0.1", "Last-Operation": "Create",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func tableOf(t *testing.T, namespace, plural string) *metav1.Table {
	t.Helper()
	table := &metav1.Table{}
	err := restClient(t).Get().Namespace(namespace).Resource(plural).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").
		Do(t.Context()).Into(table)
	if err != nil {
		t.Fatal(err)
	}
	return table
}
