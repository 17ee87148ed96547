package rollout

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

// Failures of earlier rollouts are not mentioned.
func TestProgressNamesFailedMachinesThatAreGone(t *testing.T) {
	before, since := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-time.Minute))
	d := web(numbers(4, 1, 3), rolling, failing, func(d *v1beta1.MachineDeployment) {
		for i := range d.Status.Conditions {
			d.Status.Conditions[i].LastTransitionTime = metav1.NewTime(now.Add(-5 * time.Minute))
		}
		d.Status.RecentFailures = []v1beta1.FailedMachine{
			{Name: "web-b-1", Reason: "CreateError", Message: "no such size\x1b[31m", Time: &since},
			{Name: "web-a-1", Reason: "InstanceVanished", Message: "long ago", Time: &before}}
	})
	p := Judge(d, now)
	picture := strings.Join(p.Picture(printer.Style{}, 0), "\n")
	for what, text := range map[string]string{"the error": p.Err().Error(), "the picture": picture} {
		if !strings.Contains(text, "machine web-b-1, 60s ago: CreateError: no such size[31m") ||
			strings.Contains(text, "web-a-1") {
			t.Errorf("%s is\n%s\nwant the machine that failed since the rollout started, and no other", what, text)
		}
	}
}
