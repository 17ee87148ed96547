package preview

import (
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: changed-user-data-is-told.
func TestPlanNotesMachinesWithOtherUserData(t *testing.T) {
	note := func(f Fleet) string {
		t.Helper()
		p, err := Make(f)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(p.Notes, func(n string) bool { return strings.Contains(n, "user data") })
		if at < 0 {
			return ""
		}
		return p.Notes[at]
	}
	f := fleet(3)
	f.Classes = map[string]Class{"small": {State: ClassExists, UserDataHash: "new"}}
	for i, hash := range []string{"old", "new", ""} {
		f.Machines[i].Status.Instance = &v1beta1.InstanceStatus{UserDataHash: hash}
	}
	if got := note(f); !strings.HasPrefix(got,
		"Machines that were created from other user data than class small has now: 1 of 3.") ||
		!strings.HasSuffix(got, "machinist rollout restart md/web -n fleets") {
		t.Errorf("without another change, the note is %q", got)
	}
	f.Classes = existing
	if got := note(f); got != "" {
		t.Errorf("although the user data of the class is not known, the note is %q", got)
	}
	f.Classes = map[string]Class{"small": {State: ClassExists, UserDataHash: "new"}}
	f.NewDeployment = f.NewDeployment.DeepCopy()
	f.NewDeployment.Spec.Template.Spec.Version = "v1.36.2"
	if got := note(f); got != "" {
		t.Errorf("although all machines are replaced anyway, the note is %q", got)
	}
}

// Rule: changed-account-is-told.
func TestPlanNotesMachinesInAnotherAccount(t *testing.T) {
	f := fleet(3)
	f.Classes = map[string]Class{"small": {State: ClassExists, Account: "two"}}
	for i, account := range []string{"one", "two", ""} {
		f.Machines[i].Status.Instance = &v1beta1.InstanceStatus{Account: account}
	}
	p, err := Make(f)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool {
		return strings.HasPrefix(n, `Machines in another account than "two", `) && strings.Contains(n, "1 of 3")
	}) {
		t.Errorf("the notes are %q", p.Notes)
	}
}
