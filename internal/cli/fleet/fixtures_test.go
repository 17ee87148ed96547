package fleet

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/disruption"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// cond returns a condition whose last transition was the given time ago.
func cond(kind string, status metav1.ConditionStatus, reason, message string, since time.Duration) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(since),
		ObservedGeneration: 1}
}

const on, off = metav1.ConditionTrue, metav1.ConditionFalse

func ownedBy(kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(name), Controller: &yes}}
}

func deployment(name string, replicas int32, conditions ...metav1.Condition) v1beta1.MachineDeployment {
	d := v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID(name), Generation: 1,
			CreationTimestamp: ago(time.Hour)},
		Spec: v1beta1.MachineDeploymentSpec{Replicas: &replicas},
	}
	d.Status.ObservedGeneration, d.Status.CurrentRevision = 1, 2
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = replicas, replicas, replicas
	d.Status.Conditions = append([]metav1.Condition{cond(v1beta1.ConditionRollingOut, off, v1beta1.ReasonRolloutComplete,
		"", time.Hour)}, conditions...)
	return d
}

func set(owner, name, revision string, replicas int32) v1beta1.MachineSet {
	s := v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name, UID: types.UID(name), CreationTimestamp: ago(time.Hour),
	}, Spec: v1beta1.MachineSetSpec{Replicas: &replicas}}
	if owner != "" {
		s.OwnerReferences = ownedBy("MachineDeployment", owner)
		s.Annotations = map[string]string{v1beta1.AnnotationRevision: revision}
	}
	return s
}

func machine(set, name string, changes ...func(*v1beta1.Machine)) v1beta1.Machine {
	m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID(name),
		CreationTimestamp: ago(time.Hour), Labels: map[string]string{"pool": set}}}
	if set != "" {
		m.OwnerReferences = ownedBy("MachineSet", set)
	}
	m.Status.Phase, m.Status.NodeRef = v1beta1.MachineRunning, &v1beta1.NodeRef{Name: "node-" + name}
	for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy,
		v1beta1.ConditionUpToDate, v1beta1.ConditionReady} {
		m.Status.Conditions = append(m.Status.Conditions, cond(kind, on, "Fine", "", 50*time.Minute))
	}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func notLaunched(reason string, since time.Duration) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Phase, m.Status.NodeRef, m.CreationTimestamp = v1beta1.MachinePending, nil, ago(since)
		m.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionLaunched, off, reason, "", since),
			cond(v1beta1.ConditionReady, off, reason, "", since)}
	}
}

func deleted(reason string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		at := ago(9 * time.Minute)
		m.DeletionTimestamp, m.Status.Phase = &at, v1beta1.MachineDeleting
		m.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionDeleting, on, reason, "", 9*time.Minute),
			cond(v1beta1.ConditionReady, off, reason, "", 9*time.Minute)}
	}
}

func vanished(m *v1beta1.Machine) {
	m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureInstanceVanished
	m.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionReady, off, v1beta1.ReasonInstanceVanished, "",
		time.Minute)}
}

func running(name string) why.Process {
	seen := now
	return why.Process{Name: name, IsKnown: true, IsRunning: true, LastRenewal: &seen}
}

func healthy() Facts {
	f := Facts{Now: now, Namespace: "prod", Deployments: []v1beta1.MachineDeployment{deployment("web", 3)},
		Sets:      []v1beta1.MachineSet{set("web", "web-new", "2", 3), set("web", "web-old", "1", 0)},
		Processes: []why.Process{running("machinist-manager"), running("machinist-provider-sim")},
	}
	for i := range 3 {
		f.Machines = append(f.Machines, machine("web-new", fmt.Sprintf("web-new-%d", i)))
	}
	return f
}

func withBrokenSources() Facts {
	f := healthy()
	class := func(name string, ready metav1.ConditionStatus, reason, message string) v1beta1.MachineClass {
		c := v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
		c.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionReady, ready, reason, message, time.Hour)}
		return c
	}
	going := class("going", on, v1beta1.ReasonValid, "")
	at := ago(time.Minute)
	going.DeletionTimestamp = &at
	f.Classes = []v1beta1.MachineClass{
		class("small", on, v1beta1.ReasonValid, ""), going, class("refused", off, v1beta1.ReasonCredentialsRefused,
			"Unauthenticated: the token has expired"),
	}
	f.Secrets = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cloud",
		DeletionTimestamp: &at}}}
	f.Sets[0].Spec.Template.Spec.Version = "v1.36.3"
	f.Machines[0].Spec.Version, f.Machines[1].Spec.Version, f.Machines[2].Spec.Version = "v1.36.3", "v1.36.3", "v1.35.0"
	return f
}

func troubled() Facts {
	f := healthy()
	failedAt := ago(3 * time.Hour)
	f.Deployments[0].Status.RecentFailures = []v1beta1.FailedMachine{{Name: "web-old-9", Reason: "InstanceVanished",
		Message: "instance i-9 \x1b[2Jdoes not exist", Time: &failedAt}}
	longAgo, justNow := ago(72*time.Hour), ago(2*time.Minute)
	rolling := deployment("api", 2, cond(v1beta1.ConditionProgressing, off, v1beta1.ReasonRevisionFailing,
		"3 machines of set api-new in a row\x1b[2J failed.", time.Minute))
	rolling.Status.RecentFailures = []v1beta1.FailedMachine{
		{Name: "api-new-7", Reason: "CreateError", Message: "quota of vCPUs is 8, 12 are asked for", Time: &justNow},
		{Name: "api-old-1", Reason: "web-health", Message: "the Node was not Ready for 10m", Time: &longAgo}}
	paused := deployment("db", 1, cond(v1beta1.ConditionProgressing, metav1.ConditionUnknown,
		v1beta1.ReasonDeploymentPaused, "", time.Minute))
	paused.Spec.Paused = true
	frozen := deployment("burst", 1, cond(v1beta1.ConditionFrozen, on, v1beta1.ReasonOvershoot,
		"9 machines where at most 4 are tolerated.", 3*time.Minute))
	f.Deployments = append(f.Deployments, rolling, paused, frozen)
	lone := set("", "lone", "", 2)
	lone.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionReplicaFailure, on,
		v1beta1.ReasonMachineCreateFailed, "quota exceeded", time.Minute)}
	f.Sets = append(f.Sets, set("api", "api-new", "2", 2), set("api", "api-old", "1", 1),
		set("burst", "burst-1", "2", 1), lone)
	f.Machines = append(f.Machines,
		machine("api-new", "api-new-0", notLaunched(v1beta1.ReasonClassNotFound, 4*time.Minute)),
		machine("api-new", "api-new-1", notLaunched(v1beta1.ReasonClassNotFound, 2*time.Minute)),
		machine("api-old", "api-old-0", deleted(v1beta1.ReasonBlockedByDisruptionBudget)),
		machine("burst-1", "burst-1-0", vanished), machine("lone", "lone-0"), machine("", "hand-made"),
		machine("", "kept", func(m *v1beta1.Machine) {
			m.Annotations = map[string]string{v1beta1.AnnotationPreservedUntil: "2026-07-03T12:00:00Z"}
		}),
	)
	allowed := v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "fine"}}
	allowed.Status = v1beta1.MachineHealthCheckStatus{ExpectedMachines: 3, CurrentHealthy: 2, RemediationsAllowed: 1,
		Targets: []string{"web-new-0"},
		Conditions: []metav1.Condition{cond(v1beta1.ConditionRemediationAllowed, on, v1beta1.ReasonRemediationAllowed, "",
			time.Hour)}}
	stopped := v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "stopped"}}
	stopped.Status = v1beta1.MachineHealthCheckStatus{ExpectedMachines: 8, CurrentHealthy: 2,
		Conditions: []metav1.Condition{cond(v1beta1.ConditionRemediationAllowed, off, v1beta1.ReasonControlPlaneUnreachable,
			"", 2*time.Minute)}}
	f.Checks = []v1beta1.MachineHealthCheck{stopped, allowed,
		{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "new"}}}
	f.Budgets = []v1beta1.MachineDisruptionBudget{budget("nightly", ptr.To[int32](2), ""), budget("never", nil, ""),
		budget("bad", ptr.To[int32](0), v1beta1.ReasonInvalidWindow), budget(disruption.PauseBudget, ptr.To[int32](0), ""),
		{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "new"}}}
	tomorrow := metav1.NewTime(now.Add(24 * time.Hour))
	f.Budgets[0].Status.NextChange, f.Budgets[1].Status.NextChange = &tomorrow, &tomorrow
	f.Budgets[1].Spec.Reasons = []v1beta1.DisruptionReason{v1beta1.DisruptionRollout, v1beta1.DisruptionExpiry}
	f.Budgets[3].Annotations = map[string]string{v1beta1.AnnotationPausedBy: "jane", v1beta1.AnnotationPauseReason: "network\x1b[2J"}
	f.Budgets[3].CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	gone := now.Add(-4 * time.Minute)
	f.Processes = []why.Process{{Name: "machinist-manager", Searched: []string{"machinist-system", "kube-system"}},
		{Name: "machinist-provider-sim", IsKnown: true, LastRenewal: &gone}}
	f.ReadErrors = []string{"You may not list this."}
	return f
}

// budget returns a budget that the manager has processed. If a problem is given, the budget is invalid for this reason.
func budget(name string, allowed *int32, problem string) v1beta1.MachineDisruptionBudget {
	b := v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
	b.Status = v1beta1.MachineDisruptionBudgetStatus{Selected: 9, Disrupted: 1, Allowed: allowed,
		Conditions: []metav1.Condition{cond(v1beta1.ConditionValid, metav1.ConditionTrue, v1beta1.ReasonBudgetUnderstood, "",
			time.Hour)}}
	if problem != "" {
		b.Status.Conditions[0] = cond(v1beta1.ConditionValid, metav1.ConditionFalse, problem,
			"The budget allows no disruption because it is invalid: spec.windows[0].", time.Hour)
	}
	return b
}

func golden(t *testing.T, name string, write func(*strings.Builder) error) {
	t.Helper()
	var out strings.Builder
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
