package machinedeployment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// steppedFleet describes the sets of a deployment, oldest first, as "VERSION MACHINES" with these flags:
//
//	s the set is a step    u one machine is being updated    x one machine is not Ready
//	d one more machine is being deleted    o the set has not observed its last change    r replicas are 3
type steppedFleet []string

func (f steppedFleet) objects(t *testing.T) (sets []*v1beta1.MachineSet, machines map[types.UID][]*v1beta1.Machine) {
	t.Helper()
	machines = map[types.UID][]*v1beta1.Machine{}
	for i, text := range f {
		fields := strings.Fields(text + " .")
		d := deployment("class-of-" + fields[0])
		d.Spec.Template.Spec.Version = fields[0]
		set := history{number: int64(i) + 1}.newSet(d)
		set.UID, set.Generation, set.Status.ObservedGeneration = types.UID(set.Name), 1, 1
		n, flags := int32(fields[1][0]-'0'), fields[2]
		set.Spec.Replicas = &n
		for k := range n {
			m := machine(fmt.Sprintf("m%d", k), 10, isReady)
			if k == 0 && strings.Contains(flags, "x") {
				m = machine("a", 10, notReady)
			}
			if k == 0 && strings.Contains(flags, "u") {
				condition(v1beta1.ConditionUpToDate, "False", v1beta1.ReasonUpdating)(m)
				m.Generation = 2
			}
			machines[set.UID] = append(machines[set.UID], m)
		}
		if strings.Contains(flags, "d") {
			m := machine("z", 10, isReady)
			at := m.CreationTimestamp
			m.DeletionTimestamp = &at
			machines[set.UID] = append(machines[set.UID], m)
		}
		if strings.Contains(flags, "s") {
			annotate(set, v1beta1.AnnotationVersionStep, "")
		}
		if strings.Contains(flags, "o") {
			set.Generation = 2
		}
		if strings.Contains(flags, "r") {
			*set.Spec.Replicas = 3
		}
		sets = append(sets, set)
	}
	return sets, machines
}

// Rules: steps-between-minors, steps-missing-wait, steps-never-back, steps-target-changes, steps-in-place.
func TestFindStep(t *testing.T) {
	steps := []string{"v1.35.4", "v1.36.3"}
	const inPlace = v1beta1.StrategyInPlace
	for name, test := range map[string]struct {
		sets     steppedFleet
		target   string
		steps    []string
		strategy v1beta1.DeploymentStrategyType
		want     string
		status   string // number/total, or empty
		blocked  string // part of the message, or empty
	}{
		"no steps":             {steppedFleet{"v1.34.2 3"}, "v1.37.1", nil, "", "v1.37.1", "", ""},
		"no machine":           {steppedFleet{"v1.34.2 0"}, "v1.37.1", steps, "", "v1.37.1", "", ""},
		"no set":               {nil, "v1.37.1", steps, "", "v1.37.1", "", ""},
		"the first step":       {steppedFleet{"v1.34.2 3"}, "v1.37.1", steps, "", "v1.35.4", "1/3", ""},
		"the adjacent version": {steppedFleet{"v1.34.2 3"}, "v1.35.1", steps, "", "v1.35.1", "3/3", ""},
		"another patch":        {steppedFleet{"v1.37.0 3"}, "v1.37.1", steps, "", "v1.37.1", "", ""},
		"in the first step":    {steppedFleet{"v1.34.2 2", "v1.35.4 1 s"}, "v1.37.1", steps, "", "v1.35.4", "1/3", ""},
		"a machine of an earlier version is being deleted": {steppedFleet{"v1.34.2 0 d", "v1.35.4 3 s"}, "v1.37.1", steps, "",
			"v1.35.4", "1/3", ""},
		"an earlier set may still create machines": {steppedFleet{"v1.34.2 0 o", "v1.35.4 3 s"}, "v1.37.1", steps, "",
			"v1.35.4", "1/3", ""},
		"a step with an unavailable machine": {steppedFleet{"v1.34.2 0", "v1.35.4 3 sx"}, "v1.37.1", steps, "", "v1.35.4",
			"1/3", ""},
		"a step with two machines of three": {steppedFleet{"v1.34.2 0", "v1.35.4 2 sr"}, "v1.37.1", steps, "", "v1.35.4",
			"1/3", ""},
		"a step whose machines do not exist yet": {steppedFleet{"v1.34.2 0", "v1.35.4 0 s"}, "v1.37.1", steps, "", "v1.35.4",
			"1/3", ""},
		"another set of the same minor version": {steppedFleet{"v1.35.3 0 d", "v1.35.4 3 s"}, "v1.37.1", steps, "", "v1.35.4",
			"1/3", ""},
		"a complete step": {steppedFleet{"v1.34.2 0", "v1.35.4 3 s"}, "v1.37.1", steps, "", "v1.36.3", "2/3", ""},
		"the next step has begun": {steppedFleet{"v1.35.4 3 sx", "v1.36.3 0 s"}, "v1.37.1", steps, "", "v1.36.3", "2/3",
			""},
		"the last step": {steppedFleet{"v1.35.4 0", "v1.36.3 3 s"}, "v1.37.1", steps, "", "v1.37.1", "3/3", ""},
		"an unavailable machine does not stop the first step": {steppedFleet{"v1.34.2 3 x"}, "v1.37.1", steps, "", "v1.35.4",
			"1/3", ""},
		"a step of the version of the machines is skipped": {steppedFleet{"v1.35.2 3 x"}, "v1.37.1", steps, "", "v1.36.3",
			"2/3", ""},
		"the version of an incomplete step changes": {steppedFleet{"v1.34.2 0", "v1.35.3 3 sx"}, "v1.37.1", steps, "",
			"v1.35.4", "1/3", ""},
		"an incomplete step is removed from the list": {steppedFleet{"v1.34.2 2", "v1.35.4 1 s"}, "v1.37.1",
			[]string{"v1.36.3"}, "", "v1.35.4", "", ""},
		"a missing step": {steppedFleet{"v1.34.2 3"}, "v1.37.1", []string{"v1.36.3"}, "", "v1.37.1", "",
			"a version of v1.35 is missing in spec.versionSteps: the machines have v1.34.2, and spec.template.spec.version is v1.37.1"},
		"the second step is missing": {steppedFleet{"v1.34.2 0", "v1.35.4 3 s"}, "v1.37.1", []string{"v1.35.4"}, "",
			"v1.37.1", "", "a version of v1.36 is missing"},
		"a rollout without steps has begun": {steppedFleet{"v1.34.2 2", "v1.37.1 1"}, "v1.37.1", steps, "", "v1.37.1", "3/3",
			""},
		"a rollout without steps has begun before the target was raised": {steppedFleet{"v1.34.2 2", "v1.36.0 1"}, "v1.37.1",
			steps, "", "v1.36.3", "2/3", ""},
		"the target is raised in a step": {steppedFleet{"v1.34.2 2", "v1.35.4 1 s"}, "v1.38.0", []string{"v1.35.4", "v1.36.3",
			"v1.37.1"}, "", "v1.35.4", "1/4", ""},
		"the target is lowered to the step": {steppedFleet{"v1.34.2 2", "v1.35.4 1 sx"}, "v1.35.4", []string{"v1.33.0"}, "",
			"v1.35.4", "2/2", ""},
		"the target is lowered below an incomplete step": {steppedFleet{"v1.34.2 0", "v1.35.4 3 sx"}, "v1.34.2",
			[]string{"v1.33.0"}, "", "v1.34.2", "", ""},
		"the target is lowered by several minor versions": {steppedFleet{"v1.37.1 3"}, "v1.34.2", []string{"v1.33.0"}, "",
			"v1.34.2", "", ""},
		"in place, the target is lowered by several minor versions": {steppedFleet{"v1.37.1 3"}, "v1.34.2",
			[]string{"v1.33.0"}, inPlace, "v1.34.2", "", "machines of v1.37.1 cannot become v1.34.2"},
		"in place, the target is lowered by one minor version": {steppedFleet{"v1.35.4 3"}, "v1.34.2",
			[]string{"v1.33.0"}, inPlace, "v1.34.2", "", ""},
		"in place, a rollout without steps has begun": {steppedFleet{"v1.34.2 2", "v1.37.1 1"}, "v1.37.1", steps, inPlace,
			"v1.37.1", "3/3", "machines of v1.34.2 cannot become v1.37.1"},
		"in place, machines are being updated": {steppedFleet{"v1.34.2 0", "v1.35.4 3 su"}, "v1.37.1", steps, inPlace,
			"v1.35.4", "1/3", ""},
		"in place, machines are being updated without steps": {steppedFleet{"v1.34.2 0", "v1.35.0 3 u"}, "v1.37.1", steps,
			inPlace, "v1.35.0", "", ""},
		"in place, machines are being updated to an earlier version": {steppedFleet{"v1.36.3 0", "v1.35.0 3 u"}, "v1.34.2",
			[]string{"v1.33.0"}, inPlace, "v1.35.0", "", ""},
		"in place, all machines are updated": {steppedFleet{"v1.34.2 0", "v1.35.4 3 s"}, "v1.37.1", steps, inPlace, "v1.36.3",
			"2/3", ""},
		"another major version": {steppedFleet{"v1.34.2 3"}, "v2.0.0", steps, "", "v2.0.0", "3/3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("wanted")
			d.Spec.Template.Spec.Version, d.Spec.Strategy.Type = test.target, test.strategy
			for _, version := range test.steps {
				d.Spec.VersionSteps = append(d.Spec.VersionSteps, v1beta1.VersionStep{Version: version,
					ClassName: "class-of-" + version})
			}
			sets, machines := test.sets.objects(t)
			got := findStep(d, sets, machines, noon.Add(time.Hour))
			spec := got.deployment.Spec.Template.Spec
			wantClass := "class-of-" + test.want
			if test.want == test.target {
				wantClass = "wanted"
			}
			if spec.Version != test.want || spec.ClassRef.Name != wantClass {
				t.Errorf("the step has version %s and class %s, want %s and %s", spec.Version, spec.ClassRef.Name, test.want,
					wantClass)
			}
			status := ""
			if s := got.status; s != nil {
				status = fmt.Sprintf("%d/%d", s.Number, s.Total)
				if s.Version != test.want {
					t.Errorf("the status has version %s, want %s", s.Version, test.want)
				}
			}
			if status != test.status || got.isLast != (test.want == test.target) {
				t.Errorf("the step is %q (last: %t), want %q", status, got.isLast, test.status)
			}
			if (got.blocked == "") != (test.blocked == "") || !strings.Contains(got.blocked, test.blocked) {
				t.Errorf("the rollout waits because %q, want %q", got.blocked, test.blocked)
			}
			if d.Spec.Template.Spec.Version != test.target || d.Spec.Template.Spec.ClassRef.Name != "wanted" {
				t.Error("the deployment was changed")
			}
		})
	}
}

// The machines of a set without a version have the version of their kubelets.
//
// Rule: steps-between-minors.
func TestFindStepByKubelets(t *testing.T) {
	d := deployment("wanted")
	d.Spec.Template.Spec.Version = "v1.36.3"
	d.Spec.VersionSteps = []v1beta1.VersionStep{{Version: "v1.34.9"}, {Version: "v1.35.4"}}
	set := setOf("old", 1, noon)
	*set.Spec.Replicas = 2
	kubelet := func(version string) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) { m.Status.Version = version }
	}
	step := findStep(d, []*v1beta1.MachineSet{set}, map[types.UID][]*v1beta1.Machine{
		set.UID: {machine("a", 1, kubelet("v1.35.1")), machine("b", 1, kubelet("v1.34.1")), machine("c", 1, kubelet(""))}},
		noon)
	if got := step.deployment.Spec.Template.Spec; got.Version != "v1.35.4" || got.ClassRef.Name != "wanted" {
		t.Errorf("the step has version %s and class %s, want v1.35.4 and wanted", got.Version, got.ClassRef.Name)
	}
}
