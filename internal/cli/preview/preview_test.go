package preview

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/disruption"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func fleet(n int32) Fleet {
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: "web", UID: "web", Generation: 1,
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: &n,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}, Version: "v1.36.1"},
			},
		},
	}
	return created(d)
}

var existing = map[string]Class{"small": {State: ClassExists}, "large": {State: ClassExists}}

// created returns the fleet of a deployment whose machines all exist.
func created(d *v1beta1.MachineDeployment) Fleet {
	f := Fleet{NewDeployment: d, Now: now.Add(-time.Hour), Classes: existing}
	w := newSimulation(f)
	for {
		wave, err := w.decide()
		if err != nil {
			panic(err)
		}
		if acted := w.carryOut(); wave == nil && !acted {
			break
		}
	}
	f.OldDeployment, f.Sets, f.Now = d, w.sets, now
	for _, set := range w.sets {
		for _, m := range w.machines[set.UID] {
			m.Name = fmt.Sprintf("%s-%c", set.Name, 'a'+rune(len(f.Machines)%26))
			if len(f.Machines) >= 26 {
				m.Name += fmt.Sprint(len(f.Machines) / 26)
			}
			m.UID = types.UID(m.Name)
			f.Machines = append(f.Machines, m)
		}
	}
	return f
}

func (f Fleet) withChange(change func(*v1beta1.MachineDeployment)) Fleet {
	f.NewDeployment = f.OldDeployment.DeepCopy()
	change(f.NewDeployment)
	return f
}

func (f Fleet) withBefore(change func(*v1beta1.MachineDeployment)) Fleet {
	f.OldDeployment = f.OldDeployment.DeepCopy()
	change(f.OldDeployment)
	return f
}

func newVersion(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = "v1.36.3" }

func strategy(kind v1beta1.DeploymentStrategyType) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.Type = kind }
}

func rolling(surge, unavailable int) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		s, u := intstr.FromInt(surge), intstr.FromInt(unavailable)
		d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: &s, MaxUnavailable: &u}
	}
}

func canary(d *v1beta1.MachineDeployment) {
	d.Spec.Strategy.RollingUpdate.Partition = 1
	d.Spec.Strategy.RollingUpdate.PauseAfter = &v1beta1.RolloutPause{Machines: 1}
}

func replicas(n int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = &n }
}

func all(changes ...func(*v1beta1.MachineDeployment)) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		for _, change := range changes {
			change(d)
		}
	}
}

func withBudgets(f Fleet) Fleet {
	f.Machines[1].Annotations = map[string]string{v1beta1.AnnotationDoNotDisrupt: "2026-03-02T00:00:00Z"}
	var budgets []*disruption.Budget
	for name, limit := range map[string]string{"fleet": "40%", "stop": "0"} {
		b, err := disruption.Parse(&v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.Parse(limit)}})
		if err != nil {
			panic(err)
		}
		budgets = append(budgets, b)
	}
	f.Disruptions = disruption.NewView(budgets, f.Machines, nil, f.Now)
	return f
}

func TestPlans(t *testing.T) {
	fresh := fleet(3)
	fresh.OldDeployment, fresh.Sets, fresh.Machines = nil, nil, nil
	pause := func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true }
	freeze := func(d *v1beta1.MachineDeployment) {
		d.Labels = map[string]string{v1beta1.LabelFreeze: "Overshoot"}
	}
	frozen := func(d *v1beta1.MachineDeployment) {
		d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionFrozen, Status: metav1.ConditionTrue,
			Reason: "ControlPlaneUnreachable", Message: "The target cluster\x1b[2J does not answer."}}
	}
	blocked := fleet(3)
	blocked.Machines[0].Annotations = map[string]string{v1beta1.AnnotationPaused: ""}
	blocked.Machines[1].Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "backup.example.com",
		Owner: "backup"}}
	missing := fleet(2).withChange(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "large" })
	missing.Classes = map[string]Class{"large": {State: ClassMissing}}
	sick := fleet(3)
	sick.Machines[2].Status.Phase = v1beta1.MachineFailed
	sick.Machines[2].Status.FailureReason = v1beta1.FailureCreateError
	sick.Machines[2].Status.Conditions[0].Status = metav1.ConditionFalse
	sick.Machines[2].Status.Conditions[1].Status = metav1.ConditionFalse
	for name, f := range map[string]Fleet{
		"new":                 fresh,
		"nothing":             fleet(3).withChange(func(*v1beta1.MachineDeployment) {}),
		"rolling":             fleet(3).withChange(newVersion),
		"budgets":             withBudgets(fleet(5).withChange(newVersion)),
		"rolling-unavailable": fleet(5).withChange(all(newVersion, rolling(0, 2))),
		"rolling-many":        fleet(40).withChange(newVersion),
		"rolling-scaled-up":   fleet(3).withChange(all(newVersion, replicas(5))),
		"rolling-sick":        sick.withChange(newVersion),
		"scaled-up":           fleet(2).withChange(replicas(5)),
		"scaled-down":         fleet(4).withChange(replicas(1)),
		"emptied":             fleet(3).withChange(replicas(0)),
		"recreate":            fleet(3).withBefore(strategy(v1beta1.StrategyRecreate)).withChange(newVersion),
		"on-delete":           fleet(3).withBefore(strategy(v1beta1.StrategyOnDelete)).withChange(newVersion),
		"in-place":            fleet(3).withBefore(strategy(v1beta1.StrategyInPlace)).withChange(newVersion),
		"in-place-restart": fleet(2).withBefore(strategy(v1beta1.StrategyInPlace)).withChange(
			func(d *v1beta1.MachineDeployment) { d.Spec.RolloutAfter = &metav1.Time{Time: now.Add(-time.Minute)} }),
		"labels": fleet(3).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.Spec.Node.Labels = map[string]string{"tier": "front"}
			d.Spec.Template.ObjectMeta.Labels["team"] = "blue"
		}),
		"deployment-only": fleet(3).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.ProgressDeadline = &metav1.Duration{Duration: time.Hour}
		}),
		"pause-after-and-partition": fleet(4).withChange(all(newVersion, rolling(1, 0), canary)),
		"version-steps": fleet(2).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.Spec.Version = "v1.38.2"
			d.Spec.VersionSteps = []v1beta1.VersionStep{{Version: "v1.37.4", ClassName: "large"}}
		}),
		"version-step-missing": fleet(2).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.Spec.Version = "v1.38.2"
			d.Spec.VersionSteps = []v1beta1.VersionStep{{Version: "v1.36.1"}}
		}),
		"paused":          fleet(2).withBefore(pause).withChange(newVersion),
		"paused-scaled":   fleet(2).withBefore(pause).withChange(all(newVersion, replicas(3))),
		"frozen-by-label": fleet(2).withBefore(freeze).withChange(newVersion),
		"frozen":          fleet(2).withBefore(frozen).withChange(newVersion),
		"scheduled": fleet(2).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.RolloutAfter = &metav1.Time{Time: now.Add(time.Hour)}
		}),
		"held":          blocked.withChange(newVersion),
		"class-missing": missing,
	} {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(f.OldDeployment, f.NewDeployment, f.Sets, f.Machines)
			p, err := Make(f)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(f.OldDeployment, f.NewDeployment, f.Sets, f.Machines) != before {
				t.Error("Make changed its input")
			}
			var out strings.Builder
			if err := p.Text(&out, printer.Style{}); err != nil {
				t.Fatal(err)
			}
			checkBounds(t, f, p)
			golden(t, name, out.String())
			if name == "rolling-many" || name == "paused-scaled" {
				for kind, style := range map[string]printer.Style{"wide": {AllColumns: true}, "colour": {Colour: true}} {
					out.Reset()
					if err := p.Text(&out, style); err != nil {
						t.Fatal(err)
					}
					golden(t, name+"."+kind, out.String())
				}
			}
		})
	}
}

// checkBounds checks the limits that the API documentation promises.
func checkBounds(t *testing.T, f Fleet, p *Plan) {
	t.Helper()
	was := int32(len(f.Machines))
	for i, w := range p.Waves {
		if w.Live > max(p.Replicas+p.MaxSurge, was) {
			t.Errorf("wave %d: %d live machines, replicas are %d and maxSurge %d", i+1, w.Live, p.Replicas, p.MaxSurge)
		}
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(p.Machines.Deleted, p.Machines.Updated, p.Machines.Unchanged) {
		if seen[name] {
			t.Errorf("machine %s is in two lists", name)
		}
		seen[name] = true
	}
	if len(seen) != len(f.Machines) {
		t.Errorf("%d of %d machines are in a list", len(seen), len(f.Machines))
	}
	got := int32(len(p.Machines.Unchanged)+len(p.Machines.Updated)) + p.Machines.Created - p.Machines.Transient
	if len(p.Changes) > 0 && got != p.Replicas {
		t.Errorf("%d machines at the end, want %d replicas", got, p.Replicas)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestMachineThatDoesNotMatchIsReleasedAndReplaced(t *testing.T) {
	f := fleet(2)
	f.Machines[0].Labels["app"] = "another"
	p, err := Make(f.withChange(replicas(3)))
	if err != nil {
		t.Fatal(err)
	}
	if m := p.Machines; m.Created != 2 || len(m.Deleted) != 0 || len(m.Unchanged) != 2 {
		t.Errorf("%+v", m)
	}
}

func TestJSONHasNoNullLists(t *testing.T) {
	for name, f := range map[string]Fleet{"nothing": fleet(1).withChange(func(*v1beta1.MachineDeployment) {}),
		"rolling": fleet(1).withChange(newVersion)} {
		p, err := Make(f)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "null") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A preview must be fast for a large fleet that replaces one machine at a time.
func BenchmarkPlan(b *testing.B) {
	f := fleet(300).withChange(newVersion)
	for b.Loop() {
		if _, err := Make(f); err != nil {
			b.Fatal(err)
		}
	}
}
