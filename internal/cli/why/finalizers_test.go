package why

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// In a background deletion, the garbage collector deletes nothing until the owner is gone.
//
// Rule: why-names-finalizers.
func TestExplainFleetThatIsBeingDeleted(t *testing.T) {
	const finalizer, helm = "example.com/backup", "example.com/backup (written by helm)"
	for name, c := range map[string]struct {
		finalizers []string
		reason     string
		texts      []string
		command    string
	}{
		"in the foreground": {[]string{metav1.FinalizerDeleteDependents}, OwnerDeleting,
			[]string{"Kubernetes deletes its machines first"}, ""},
		"in the foreground, and held": {[]string{finalizer, metav1.FinalizerDeleteDependents}, OwnerDeleting,
			[]string{"Kubernetes deletes its machines first", helm}, ""},
		"in the background, and held": {[]string{finalizer}, OtherFinalizers,
			[]string{"keep it, and its machines with it", helm},
			"kubectl delete machinesets.machinist.dev -l machinist.dev/machine-deployment=web -n prod"},
		"without its machines": {[]string{metav1.FinalizerOrphanDependents}, OwnerDeleting,
			[]string{"The machines stay, and have no owner afterwards"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment()
			at := ago(time.Minute)
			d.DeletionTimestamp, d.Finalizers = &at, c.finalizers
			d.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)},
				{Manager: "helm", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/backup\"":{}}}}`)},
			}
			f := ExplainFleet(FleetFacts{Now: now, Deployment: d})[0]
			if f.Reason != c.reason {
				t.Errorf("reason %s, want %s", f.Reason, c.reason)
			}
			for _, want := range c.texts {
				if !strings.Contains(f.Description+f.NextStep, want) {
					t.Errorf("%q %q does not contain %q", f.Description, f.NextStep, want)
				}
			}
			if !strings.HasSuffix(f.Instructions, c.command) {
				t.Errorf("the command is %q, want %q", f.Instructions, c.command)
			}
		})
	}
}

func TestExplainNamesFinalizersOfTheSet(t *testing.T) {
	at := ago(time.Minute)
	s := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", DeletionTimestamp: &at,
		Finalizers: []string{"example.com/backup"}}}
	findings := Explain(Facts{Now: now, Machine: machine(), Set: s, Provider: running})
	last := findings[len(findings)-1]
	if last.Object != "machineset/web" || !strings.Contains(last.Description, "example.com/backup") ||
		!strings.HasSuffix(last.Instructions, "kubectl delete machines.machinist.dev -l machinist.dev/machine-set=web -n prod") {
		t.Errorf("got %+v", last)
	}
}
