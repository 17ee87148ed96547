package preview

import (
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: changed-user-data-is-told.
func TestAPlanTellsOfMachinesWithOtherUserData(t *testing.T) {
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
	f.UserDataHash = "new"
	for i, hash := range []string{"old", "new", ""} { // Of the last it is not known.
		f.Machines[i].Status.Instance = &v1beta1.InstanceStatus{UserDataHash: hash}
	}
	if got := note(f); !strings.HasPrefix(got, "1 machine of 3 had other user data than class small has now.") ||
		!strings.HasSuffix(got, "machinist rollout restart md/web -n fleets") {
		t.Errorf("nothing else would change: %q", got)
	}
	f.UserDataHash = ""
	if got := note(f); got != "" {
		t.Errorf("the user data of the class is not known: %q", got)
	}
	f.UserDataHash = "new"
	f.After = f.After.DeepCopy()
	f.After.Spec.Template.Spec.Version = "v1.36.2"
	if got := note(f); got != "" {
		t.Errorf("all machines are replaced anyway: %q", got)
	}
}

// Rule: changed-account-is-told.
func TestAPlanTellsOfMachinesInAnotherAccount(t *testing.T) {
	f := fleet(3)
	f.Account = "two"
	for i, account := range []string{"one", "two", ""} {
		f.Machines[i].Status.Instance = &v1beta1.InstanceStatus{Account: account}
	}
	p, err := Make(f)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool {
		return strings.HasPrefix(n, `1 machine of 3 had another account than "two"`)
	}) {
		t.Errorf("the notes are %q", p.Notes)
	}
}
