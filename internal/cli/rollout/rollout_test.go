package rollout

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func web(options ...func(*v1beta1.MachineDeployment)) *v1beta1.MachineDeployment {
	three := int32(3)
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: "web", UID: "web", Generation: 2},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: &three,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "large"}, Version: "v1.36.3"},
			},
		},
		Status: v1beta1.MachineDeploymentStatus{ObservedGeneration: 2, CurrentRevision: 2, Replicas: 3, UpdatedReplicas: 3,
			ReadyReplicas: 3, AvailableReplicas: 3},
	}
	for _, o := range options {
		o(d)
	}
	return d
}

func numbers(replicas, updated, available int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = replicas, updated, available
	}
}

func message(kind string, status metav1.ConditionStatus, reason, message string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			Message: message, ObservedGeneration: 2})
	}
}

func paused(d *v1beta1.MachineDeployment)     { d.Spec.Paused = true }
func unobserved(d *v1beta1.MachineDeployment) { d.Status.ObservedGeneration = 1 }
func edited(d *v1beta1.MachineDeployment)     { d.Generation = 3 }

func due(in time.Duration) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.RolloutAfter = &metav1.Time{Time: now.Add(in)} }
}

func failedMachine(d *v1beta1.MachineDeployment) {
	for _, name := range []string{"web-x-1", "web-x-2", "web-x-3", "web-x-4"} {
		d.Status.FailedMachines = append(d.Status.FailedMachines, v1beta1.FailedMachine{Name: name, Reason: "CreateError",
			Message: "no such size\x1b[31m"})
	}
}

var (
	done = message(v1beta1.ConditionRollingOut, metav1.ConditionFalse, v1beta1.ReasonRolloutComplete,
		"All machines are of revision 2.")
	rolling = message(v1beta1.ConditionRollingOut, metav1.ConditionTrue, v1beta1.ReasonRolloutBlocked,
		"1 of 2 machines of the new revision available\x1b[2J.")
	well = message(v1beta1.ConditionProgressing, metav1.ConditionTrue, v1beta1.ReasonMachineSetUpdated,
		"Set web-b is progressing.")
	stuck = message(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded,
		"Set web-b has made no progress for 10m0s.")
	failing = message(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonRevisionFailing,
		"3 machines of set web-b in a row failed to launch.")
)

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		of   *v1beta1.MachineDeployment
		want State
	}{
		"complete":                     {web(done, well), StateComplete},
		"complete though paused":       {web(done, well, paused), StateComplete},
		"not all machines are updated": {web(numbers(4, 2, 3), rolling, well), StateProgressing},
		"one machine is not available": {web(numbers(3, 3, 2), done, well), StateScaling},
		"an old machine still exists":  {web(numbers(4, 3, 3), rolling, well), StateProgressing},
		"update in place in progress":  {web(rolling, well), StateProgressing},
		"no condition yet":             {web(), StateUnobserved},
		"not observed":                 {web(done, well, edited), StateUnobserved},
		"not observed, failed before":  {web(rolling, failing, edited), StateUnobserved},
		"partition reached": {web(numbers(3, 2, 3), message(v1beta1.ConditionRollingOut, metav1.ConditionFalse,
			v1beta1.ReasonPartitionReached, "Lower partition.")), StatePartitioned},
		"partition reached, but a machine is not available": {web(numbers(3, 2, 2), message(v1beta1.ConditionRollingOut,
			metav1.ConditionFalse, v1beta1.ReasonPartitionReached, "Lower partition.")), StateScaling},
		"waiting for a promotion": {web(numbers(3, 1, 3), message(v1beta1.ConditionRollingOut, metav1.ConditionTrue,
			v1beta1.ReasonWaitingForPromotion, "Promote.")), StateWaiting},
		"paused midway":     {web(numbers(4, 2, 3), rolling, paused), StatePaused},
		"deadline exceeded": {web(numbers(4, 1, 3), rolling, stuck), StateFailed},
		"revision failing":  {web(numbers(4, 1, 3), rolling, failing), StateFailed},
		"refused, and so never observed": {web(message(v1beta1.ConditionProgressing, metav1.ConditionFalse,
			v1beta1.ReasonInvalidConfiguration, "spec.x"), unobserved), StateFailed},
		"a set could not be created yet": {web(message(v1beta1.ConditionProgressing, metav1.ConditionFalse,
			v1beta1.ReasonMachineSetCreateError, "quota"), unobserved), StateUnobserved},
		"no replicas, and one machine is left": {web(numbers(1, 1, 1), done, well, func(d *v1beta1.MachineDeployment) {
			d.Spec.Replicas = new(int32)
		}), StateScaling},
		"restarted, but not processed yet": {web(done, well, due(time.Second)), StateUnobserved},
		"restarted long ago":               {web(done, well, due(-time.Minute)), StateComplete},
		"to be restarted tonight":          {web(done, well, due(6*time.Hour)), StateComplete},
	} {
		if got := Judge(test.of, now).State; got != test.want {
			t.Errorf("%s: %s, expected %s", name, got, test.want)
		}
	}
}

func TestProgressText(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name string
		of   *v1beta1.MachineDeployment
	}{
		{"complete", web(done, well)},
		{"progressing", web(numbers(4, 2, 3), rolling, well)},
		{"unobserved", web(done, well, edited)},
		{"paused", web(numbers(4, 2, 3), rolling, paused)},
		{"failing", web(numbers(4, 1, 3), rolling, failing, failedMachine)},
		{"refused", web(message(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration,
			"spec.x"), unobserved)},
	} {
		p := Judge(c.of, now)
		out.WriteString("== " + c.name + "\n" + p.Line() + "\n")
		for _, picture := range [][]string{p.Picture(printer.Style{ASCII: true}, 0),
			p.Picture(printer.Style{ASCII: true}, 60), p.Picture(printer.Style{}, 24),
			p.Picture(printer.Style{Colour: true}, 80)} {
			out.WriteString("  |" + strings.Join(picture, "\n  |") + "\n")
		}
		if err := p.Err(); err != nil {
			out.WriteString(err.Error() + "\n")
		}
	}
	golden(t, "progress", out.String())
	for _, width := range []int{10, 24, 40, 80} {
		for _, line := range Judge(web(numbers(4, 2, 3), rolling, paused), now).Picture(printer.Style{}, width) {
			if printer.Width(line) > width {
				t.Errorf("with %d columns, a line takes %d: %q", width, printer.Width(line), line)
			}
		}
	}
}

func TestProgressShowsWhatMachinesWaitFor(t *testing.T) {
	machine := func(name string, reason, message string) *v1beta1.Machine {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionLaunched, Status: metav1.ConditionFalse,
			Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}}
		return m
	}
	first := Judge(web(numbers(3, 3, 0), rolling), now)
	ordinary := first.WithMachines([]*v1beta1.Machine{machine("a", v1beta1.ReasonProvisioning, "")}, now)
	if ordinary.Line() != first.Line() || ordinary.RecheckAfter != RereadPeriod {
		t.Errorf("machines that are being created are shown as %q, and read again after %s", ordinary.Line(), ordinary.RecheckAfter)
	}
	p := first.WithMachines([]*v1beta1.Machine{
		machine("b", v1beta1.ReasonInvalidConfiguration, `InvalidArgument: there is no region "x"`),
		machine("c", v1beta1.ReasonInvalidConfiguration, ""),
		machine("a", v1beta1.ReasonProvisioning, ""),
	}, now)
	want := `2 machines: The configuration of the machine is rejected. InvalidArgument: there is no region "x" (machinist why machine/b)`
	if line := p.Line(); !strings.HasSuffix(line, ". "+want) {
		t.Errorf("Line() = %q", line)
	}
	picture := p.Picture(printer.Style{}, 0)
	if last := picture[len(picture)-1]; last != want {
		t.Errorf("the last line of the picture is %q", last)
	}
	untouched := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "u",
		CreationTimestamp: metav1.NewTime(now.Add(-30 * time.Second))}}
	if line := first.WithMachines([]*v1beta1.Machine{untouched}, now).Line(); line != first.Line() {
		t.Errorf("a machine that was just created is shown as %q", line)
	}
	if line := first.WithMachines([]*v1beta1.Machine{untouched}, now.Add(time.Minute)).Line(); !strings.HasSuffix(line,
		"1 machine: The provider process has not processed the machine yet (machinist why machine/u)") {
		t.Errorf("a machine without a provider process is shown as %q", line)
	}
	if done := Judge(web(done, well),
		now); done.WithMachines([]*v1beta1.Machine{machine("b", v1beta1.ReasonInvalidConfiguration, "")},
		now).Line() != done.Line() {
		t.Error("a complete rollout shows what a machine waits for")
	}
}

func set(number, class, version string, age time.Duration) *v1beta1.MachineSet {
	n := int32(0)
	return &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleets", Name: "web-" + class + number, UID: types.UID(class + number),
			CreationTimestamp: metav1.NewTime(now.Add(-age)),
			Annotations:       map[string]string{v1beta1.AnnotationRevision: number},
		},
		Spec: v1beta1.MachineSetSpec{
			Replicas: &n,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web",
				v1beta1.LabelTemplateHash: class + number}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web", v1beta1.LabelTemplateHash: class + number,
					v1beta1.LabelMachineDeployment: "web"}},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}, Version: version},
			},
		},
	}
}

func sets() []*v1beta1.MachineSet {
	current := set("3", "large", "v1.36.3", time.Hour)
	*current.Spec.Replicas, current.Status.Replicas = 3, 3
	current.Annotations[machinedeployment.AnnotationChangeCause] = "larger"
	before := set("2", "small", "v1.36.3", 26*time.Hour)
	before.Annotations[v1beta1.AnnotationRolloutAfter] = "2026-02-28T10:00:00Z"
	first := set("1", "small", "v1.36.1", 30*24*time.Hour)
	first.Annotations[machinedeployment.AnnotationChangeCause] = "first\x1b[2J try"
	return []*v1beta1.MachineSet{current, first, before}
}

func TestHistoryText(t *testing.T) {
	var out strings.Builder
	h := HistoryOf(web(), sets(), now)
	for _, style := range []printer.Style{{}, {AllColumns: true}, {Colour: true}} {
		if err := h.Text(&out, style); err != nil {
			t.Fatal(err)
		}
	}
	if err := HistoryOf(web(), nil, now).Text(&out, printer.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, number := range []int64{1, 3} {
		detail, err := Show(web(), sets(), number, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := detail.Text(&out, printer.Style{}); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "history", out.String())
}

func TestBack(t *testing.T) {
	for name, test := range map[string]struct {
		of        *v1beta1.MachineDeployment
		sets      []*v1beta1.MachineSet
		to, want  int64
		skipped   bool
		rejection string
	}{
		"previous revision": {web(), sets(), 0, 2, false, ""},
		"given revision":    {web(), sets(), 1, 1, false, ""},
		"current revision":  {web(), sets(), 3, 3, true, ""},
		"same template":     {web(), append(sets(), set("4", "large", "v1.36.3", time.Minute)), 3, 3, true, ""},
		"a restart is not undone": {web(), append(sets(), set("4", "large", "v1.36.3", time.Minute)), 0, 2,
			false, ""},
		"missing revision":            {web(), sets(), 9, 0, false, "no revision 9"},
		"no history":                  {web(), nil, 0, 0, false, "no rollout history found"},
		"nothing else in the history": {web(), sets()[:1], 0, 0, false, "no revision to go back to"},
		"paused":                      {web(paused), sets(), 0, 0, false, "resume it first"},
		"before the controller has processed a change": {web(func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.Spec.Version = "v1.37.0"
		}), sets(), 0, 3, false, ""},
	} {
		undo, err := NewUndo(test.of, test.sets, test.to, now)
		if test.rejection != "" {
			if err == nil || !strings.Contains(err.Error(), test.rejection) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || undo.Revision != test.want || (undo.SkipReason != "") != test.skipped ||
			(len(undo.Changes) == 0) != test.skipped {
			t.Errorf("%s: %+v, %v", name, undo, err)
		}
	}
}

// placedWeb returns a deployment with a placement, and the sets of its revisions.
func placedWeb() (*v1beta1.MachineDeployment, []*v1beta1.MachineSet) {
	zones := func(classes ...string) *v1beta1.Placement {
		p := &v1beta1.Placement{}
		for _, class := range classes {
			p.Domains = append(p.Domains, v1beta1.PlacementDomain{Name: "zone-" + class,
				Options: []v1beta1.PlacementOption{{ClassName: class}}})
		}
		return p
	}
	first, second, third := set("1", "a", "v1.36.3", 3*time.Hour), set("2", "b", "v1.36.3", 2*time.Hour),
		set("3", "c", "v1.36.3", time.Hour)
	for set, p := range map[*v1beta1.MachineSet]*v1beta1.Placement{second: zones("a", "b"), third: zones("a", "b", "c", "d")} {
		set.Spec.Template.Spec.ClassRef, set.Spec.Placement = nil, p
	}
	d := web(func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef, d.Spec.Placement = nil, third.Spec.Placement.DeepCopy()
	})
	return d, []*v1beta1.MachineSet{first, second, third}
}

func TestHistoryOfPlacement(t *testing.T) {
	d, sets := placedWeb()
	var out strings.Builder
	for _, style := range []printer.Style{{}, {AllColumns: true}} {
		if err := HistoryOf(d, sets, now).Text(&out, style); err != nil {
			t.Fatal(err)
		}
	}
	detail, err := Show(d, sets, 2, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := detail.Text(&out, printer.Style{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "history-placement", out.String())
}

func TestUndoRestoresPlacement(t *testing.T) {
	for number, want := range map[int64]int{1: 0, 2: 2} {
		d, sets := placedWeb()
		undo, err := NewUndo(d, sets, number, now)
		if err != nil || undo.SkipReason != "" || len(undo.Changes) == 0 {
			t.Fatalf("revision %d: %+v, %v", number, undo, err)
		}
		undo.Apply(d)
		hasClass := d.Spec.Template.Spec.ClassRef != nil
		if got := len(d.Spec.Placement.ClassNames()); got != want || hasClass != (want == 0) {
			t.Errorf("revision %d: %d classes in the placement, classRef %t", number, got, hasClass)
		}
	}
}

func TestExpect(t *testing.T) {
	for kind, want := range map[v1beta1.DeploymentStrategyType]int{"": 0, v1beta1.StrategyRecreate: 1,
		v1beta1.StrategyOnDelete: 1, v1beta1.StrategyInPlace: 1} {
		d := web(func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.Type = kind })
		if got := Warnings(d, true); len(got) != want {
			t.Errorf("%s: %q", kind, got)
		}
	}
	frozen := web(func(d *v1beta1.MachineDeployment) { d.Labels = map[string]string{v1beta1.LabelFreeze: ""} })
	if got := Warnings(frozen, false); len(got) != 1 {
		t.Errorf("frozen: %q", got)
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
