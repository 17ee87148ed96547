//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

// A rollout pauses after its first machine, is promoted by the command line, stops at its partition, and is undone. All
// instances are counted in the cloud.
func TestCanary(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(3, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{Partition: 1,
				PauseAfter: &v1beta1.RolloutPause{Machines: 1}}
		}
	})
	m.awaitRunning(3)
	m.rollTo(examples.LargeClass)
	m.awaitProgressing(v1beta1.ReasonWaitingForPromotion)
	m.awaitClasses("the first machine is new", map[string]int{examples.SmallClass: 2, examples.LargeClass: 1})
	m.wantOutput("promoted (revision 2)", "rollout", "promote", "md/workers")
	m.wantOutput("rolled out up to its partition: 2 of 3 updated, 1 old left", "rollout", "status", "md/workers")
	m.awaitClasses("the partition is reached", map[string]int{examples.SmallClass: 1, examples.LargeClass: 2})
	m.wantOutput("rolled back", "rollout", "undo", "md/workers")
	m.wantOutput("successfully rolled out", "rollout", "status", "md/workers")
	m.awaitClasses("the rollout is undone", map[string]int{examples.SmallClass: 3})
	// The rollout and its reversal replace two machines each.
	m.wantInstances(t, 3+2+2, 3)
}

func (m *machinist) awaitProgressing(reason string) {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineDeploymentList{}, "Progressing with the reason "+reason,
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			if len(l.Items) != 1 {
				return false, "no deployment"
			}
			c := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionProgressing)
			if c == nil {
				return false, "no condition"
			}
			return c.Reason == reason, c.Reason + ": " + c.Message
		}, client.InNamespace(namespace))
}

// wantOutput runs the command line and fails unless its output contains the text.
func (m *machinist) wantOutput(text string, args ...string) {
	m.t.Helper()
	out, err := exec.Command(filepath.Join(binDir(m.t), "machinist"), append(args, "-n", namespace, "--kubeconfig",
		m.Control.Kubeconfig())...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), text) {
		m.t.Errorf("machinist %s: %v: %s\nwant %q in the output", strings.Join(args, " "), err, out, text)
	}
}
