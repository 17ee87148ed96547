package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

func TestPlanText(t *testing.T) {
	lossesOnly := func(m *v1beta1.Migration) {
		addFindings(m)
		m.Status.Findings = m.Status.Findings[1:]
	}
	blocked, open, accepted := fleet(addFindings), fleet(lossesOnly), fleet(func(m *v1beta1.Migration) {
		lossesOnly(m)
		m.Spec.Accept = []string{"NoUserData", "UnknownField"}
	})
	all, beginning := PlanOf(blocked, pages(t)), PlanOf(accepted, pages(t))
	all.ListsAll, beginning.Beginning = true, true
	unread := PlanOf(open, Pages{})
	unread.Unread = "You may not list ConfigMaps in namespace prod, so the objects and fields are not shown."
	for name, test := range map[string]struct {
		plan  Plan
		style printer.Style
	}{
		"blocked":   {PlanOf(blocked, pages(t)), printer.Style{}},
		"all":       {all, printer.Style{}},
		"colour":    {PlanOf(blocked, pages(t)), printer.Style{Colour: true}},
		"losses":    {unread, printer.Style{}},
		"accepted":  {PlanOf(accepted, Pages{}), printer.Style{}},
		"beginning": {beginning, printer.Style{}},
		"clean":     {PlanOf(fleet(nil), Pages{}), printer.Style{}},
		"begun":     {PlanOf(inPhase(v1beta1.MigrationCopying, nil), Pages{}), printer.Style{}},
	} {
		golden(t, "plan-"+name, func(w *strings.Builder) error { return test.plan.Text(w, test.style) })
	}
}

func TestPlanErr(t *testing.T) {
	for name, test := range map[string]struct {
		m    *v1beta1.Migration
		want string
	}{
		"nothing found": {fleet(nil), ""},
		"blocker and losses": {fleet(addFindings), `migration "old-fleet" cannot start: fix the Blockers: FromEnvironment; accept ` +
			`the losses: machinist migrate run old-fleet -n prod --accept NoUserData,UnknownField`},
		"one accepted": {fleet(func(m *v1beta1.Migration) {
			addFindings(m)
			m.Status.Findings, m.Spec.Accept = m.Status.Findings[1:], []string{"NoUserData"}
		}), `migration "old-fleet" cannot start: accept the losses: machinist migrate run old-fleet -n prod --accept UnknownField`},
		"notes only": {fleet(func(m *v1beta1.Migration) {
			addFindings(m)
			m.Status.Findings = m.Status.Findings[3:]
			set(m, v1beta1.ConditionPlanned, metav1.ConditionTrue, v1beta1.ReasonPlanReady, "")
		}), ""},
		"blocked by no finding": {fleet(func(m *v1beta1.Migration) {
			set(m, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonBlocked, "another Migration is older.")
		}), `migration "old-fleet" cannot start: another Migration is older.`},
		"begun": {inPhase(v1beta1.MigrationFencing, addFindings), ""},
	} {
		got := ""
		if err := PlanOf(test.m, Pages{}).Err(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestAcceptRefusesOtherCodesThanLosses(t *testing.T) {
	plan := PlanOf(fleet(addFindings), Pages{})
	for code, want := range map[string]string{
		"NoUserData":      "",
		"FromEnvironment": `--accept "FromEnvironment": this is a Blocker, which cannot be accepted`,
		"Renamed":         `--accept "Renamed": the plan has no loss with this code, only NoUserData, UnknownField`,
		"nouserdata":      `--accept "nouserdata": the plan has no loss with this code`,
	} {
		accepted, err := plan.Accept([]string{code})
		if want == "" && (err != nil || !slices.Equal(accepted.Open(), []string{"UnknownField"})) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, open: %v", code, err, accepted.Open())
		}
	}
	// The command of the error must also accept what the failed command accepted, because that is not stored.
	accepted, _ := PlanOf(fleet(func(m *v1beta1.Migration) {
		addFindings(m)
		m.Status.Findings = m.Status.Findings[1:]
	}), Pages{}).Accept([]string{"NoUserData"})
	if err := accepted.Err(); err == nil || !strings.HasSuffix(err.Error(), "--accept NoUserData,UnknownField") {
		t.Errorf("after one of two losses is accepted, the error is %v", err)
	}
	if open := plan.Open(); len(open) != 2 {
		t.Errorf("Accept changed the original plan: %v", open)
	}
	if _, err := PlanOf(fleet(nil), Pages{}).Accept([]string{"X"}); err == nil {
		t.Error("a plan without losses accepts one")
	}
}

// Rule: migration-losses-are-accepted-by-place.
func TestAcceptByPlace(t *testing.T) {
	m := fleet(func(m *v1beta1.Migration) {
		m.Status.Findings = []v1beta1.MigrationFinding{{Level: "Loss", Code: "Lost", Count: 2,
			Message: "Machine/a spec.x: y"}}
	})
	plan := PlanOf(m, Pages{Findings: []Detail{{"Loss", "Lost", "Machine/a spec.x: y"},
		{"Loss", "Lost", "Machine/b spec.x: y"}}})
	for entries, want := range map[string]bool{
		"Lost": true, "Lost@spec.x": true, "Lost@Machine/a,Lost@Machine/b": true, "Lost@Machine/a": false,
		"Lost@Machine/b spec.x,Lost@Machine/a spec.x": true,
	} {
		accepted, err := plan.Accept(strings.Split(entries, ","))
		if err != nil || (len(accepted.Open()) == 0) != want {
			t.Errorf("%s: open are %v, error %v", entries, accepted.Open(), err)
		}
	}
	if _, err := plan.Accept([]string{"Lost@Machine/c"}); err == nil ||
		!strings.Contains(err.Error(), "no loss Lost in Machine/c; machinist migrate plan old-fleet -n prod --all lists") {
		t.Errorf("a place without a loss gives the error %v", err)
	}
	if unread, err := PlanOf(m, Pages{}).Accept([]string{"Lost@Machine/a"}); err != nil || len(unread.Open()) != 1 {
		t.Errorf("with unknown places, open are %v, error %v", unread.Open(), err)
	}
}

// The status contains at most maxFindings findings, and the pages contain all findings. If the status contains fewer
// findings, pages with any other finding were written for another plan.
func TestFindingsOnlyInPagesCountIfTheStatusIsFull(t *testing.T) {
	m := fleet(nil)
	written := Pages{Findings: []Detail{{"Loss", "Extra", "Machine/a: x"}, {"Loss", "Extra", "Machine/b: x"}}}
	if got := PlanOf(m, written).Findings; len(got) != 0 {
		t.Errorf("a status without findings got %+v", got)
	}
	for i := range maxFindings {
		m.Status.Findings = append(m.Status.Findings, v1beta1.MigrationFinding{Level: "Note", Code: fmt.Sprint("N", i)})
	}
	plan := PlanOf(m, written)
	if last := plan.Findings[len(plan.Findings)-1]; last.Count != 2 || last.Message != "Machine/a: x" ||
		!slices.Equal(plan.Open(), []string{"Extra"}) {
		t.Errorf("got %+v", last)
	}
}

func TestPlanned(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1beta1.Migration)
		want   bool
	}{
		"planned": {func(*v1beta1.Migration) {}, true},
		"blocked": {func(m *v1beta1.Migration) {
			addFindings(m)
			m.Status.PlanHash = ""
		}, true},
		"never":        {func(m *v1beta1.Migration) { m.Status = v1beta1.MigrationStatus{} }, false},
		"changed":      {func(m *v1beta1.Migration) { m.Generation = 2 }, false},
		"hash missing": {func(m *v1beta1.Migration) { m.Status.PlanHash = "" }, false},
		"observed by the status only": {func(m *v1beta1.Migration) {
			m.Generation, m.Status.ObservedGeneration = 2, 2
		}, false},
		"condition without a generation": {func(m *v1beta1.Migration) {
			m.Generation, m.Status.ObservedGeneration, m.Status.Conditions[0].ObservedGeneration = 2, 2, 0
		}, true},
		"unreadable since": {func(m *v1beta1.Migration) {
			set(m, v1beta1.ConditionPlanned, metav1.ConditionUnknown, v1beta1.ReasonPlanUnknown, "Forbidden")
		}, false},
		"begun": {func(m *v1beta1.Migration) { m.Spec.Stage, m.Generation = v1beta1.MigrationAdopt, 2 }, true},
	} {
		if got := HasPlan(fleet(test.change)); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func TestReadPagesSortsByNumber(t *testing.T) {
	read := pages(t)
	var names, texts []string
	for _, m := range read.Manifests {
		names = append(names, m.Kind+"/"+m.Name)
	}
	for _, f := range read.Findings {
		texts = append(texts, f.Level+" "+f.Code)
	}
	if want := []string{"MachineClass/azure-a", "MachineClass/azure-b", "MachineDeployment/web",
		"MachineSet/web-1"}; !slices.Equal(names, want) {
		t.Errorf("manifests %v, want %v", names, want)
	}
	if want := []string{"Blocker FromEnvironment", "Loss NoUserData", "Loss NoUserData", "Loss UnknownField", "Note Renamed",
		"Note Extra"}; !slices.Equal(texts, want) {
		t.Errorf("findings %v, want %v", texts, want)
	}
	_, err := ReadPages([]corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "x-1"},
		Data: map[string]string{manifestsKey: "{"}}})
	if err == nil || !strings.Contains(err.Error(), "read key manifests.yaml of the ConfigMaps of the migration") {
		t.Errorf("got %v", err)
	}
}

func TestSource(t *testing.T) {
	for word, want := range map[string]string{
		"kubermatic": "cluster.k8s.io", "cluster-api": "cluster.x-k8s.io", "Gardener": "machine.sapcloud.io",
		"openshift": "machine.openshift.io", "machine.k8s.io": "machine.k8s.io", "machines.k8s.io": "machines.k8s.io",
	} {
		if got, err := Source(word); err != nil || got != want {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
	if _, err := Source("karpenter"); err == nil || !strings.Contains(err.Error(), `"karpenter": must be one of cluster-api, `) {
		t.Errorf("got %v", err)
	}
}
