package preview

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: version-skew-waits.
func TestPlanReportsUnsupportedVersion(t *testing.T) {
	const skew = "spec.template.spec.version: version v1.36.3 is newer than v1.35.0"
	waiting := func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.Version = "v1.36.3"
		d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRollingOut, Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonVersionSkew}}
	}
	for name, test := range map[string]struct {
		fleet          Fleet
		warning        string
		blocker, noted string
	}{
		"a change of the version": {fleet(3).withChange(newVersion), skew,
			"The rollout waits: version v1.36.3 is newer than v1.35.0.", ""},
		"a new deployment": {Fleet{NewDeployment: fleet(3).NewDeployment, Now: now, Classes: existing}, skew,
			"The rollout waits: version v1.36.3 is newer than v1.35.0.", ""},
		"a rollout that waits already": {fleet(3).withBefore(waiting).withChange(func(*v1beta1.MachineDeployment) {}), skew,
			"The rollout waits: version v1.36.3 is newer than v1.35.0.", ""},
		"another change": {fleet(3).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.Spec.ClassRef.Name = "large"
		}), skew, "", "Warning: " + skew},
		"another warning": {fleet(3).withChange(newVersion), "spec.selector: overlaps", "",
			"Warning: spec.selector: overlaps"},
	} {
		t.Run(name, func(t *testing.T) {
			test.fleet.Warnings = []string{test.warning}
			p, err := Make(test.fleet)
			if err != nil {
				t.Fatal(err)
			}
			var blockers []string
			for _, b := range p.Blockers {
				blockers = append(blockers, b.Message)
			}
			if got := strings.Join(blockers, "\n"); got != test.blocker {
				t.Errorf("blockers %q, want %q", got, test.blocker)
			}
			if got := strings.Join(p.Notes, "\n"); strings.Contains(got, "Warning: ") != (test.noted != "") ||
				!strings.Contains(got, test.noted) {
				t.Errorf("notes %q, want %q", got, test.noted)
			}
		})
	}
}
