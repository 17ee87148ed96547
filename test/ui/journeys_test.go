//go:build e2e

package ui

import (
	"fmt"
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// shownState returns a JavaScript expression that is true if the heading of the page contains the given state.
func shownState(state string) string {
	return fmt.Sprintf("(document.querySelector('.head .st') || {}).textContent === %q", state)
}

func TestPagesFollowRollout(t *testing.T) {
	f := newFleet(t, 3)
	s := serve(t, admin(), "-n", f.namespace)
	b := enter(t, s, "/deployments/"+f.namespace+"/workers")
	b.await(shownState("Complete"))
	list := newTab(t, s)
	list.login()
	// A page that is loaded again loses this variable.
	get[bool](b, "window.kept = true")
	get[bool](list, "window.kept = true")

	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "large" })
	b.await(shownState("Progressing"))
	b.await("document.querySelector('.rollout rect.old') && document.querySelector('.rollout rect.coming')")
	list.await("[...document.querySelectorAll('tbody .st')].some(s => s.textContent === 'Progressing')")
	b.await(shownState("Complete"))
	b.awaitText("revision 2")
	b.await("document.querySelector('.rollout rect.ready').getAttribute('width') === '1000'")
	list.await("[...document.querySelectorAll('tbody .st')].every(s => s.textContent === 'Complete')")
	for _, tab := range []*tab{b, list} {
		if !get[bool](tab, "window.kept === true") {
			t.Error("the page was reloaded")
		}
	}
	// A screen reader must announce the result.
	b.await("document.getElementById('announcement').textContent.includes('Complete')")
}

func TestPagesShowFailureOfReplacedMachine(t *testing.T) {
	t.Parallel() // The test is slow, because a new instance that is missing counts as lost only after a minute.
	f := newFleet(t, 2)
	s := serve(t, admin(), "-n", f.namespace)
	lost := f.machines()[0]
	b := enter(t, s, "/machines/"+f.namespace+"/"+lost.Name)
	b.await(shownState("Running"))
	b.awaitText(lost.Status.NodeRef.Name)
	b.awaitText("The machine waits for nothing")
	f.loseInstance(&lost)
	// The page must report that the instance is gone, and must name the failure reason.
	b.awaitText("has its failure")
	b.awaitText("InstanceVanished")
	f.await("a replaced machine", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.AvailableReplicas == 2 && len(d.Status.FailedMachines) == 0
	})
	b.open("/failures")
	b.awaitText(lost.Name)
	b.await("[...document.querySelectorAll('tbody tr')].some(r => r.textContent.includes('Gone') && r.textContent.includes('InstanceVanished'))")
	b.open("/")
	b.awaitText("Recent failures")
	b.awaitText(lost.Name)
}

func TestPagesShowRefusalOfCloud(t *testing.T) {
	f := newFleet(t, 2)
	class := &v1beta1.MachineClass{}
	class.Name = "impossible"
	class.Spec = v1beta1.MachineClassSpec{Provider: "sim", CredentialsRef: &v1beta1.LocalRef{Name: "sim-credentials"},
		UserDataRef: &v1beta1.UserDataRef{Name: "worker-user-data"}}
	class.Spec.ProviderSpec = raw(`{"apiVersion":"sim.machinist.dev/v1beta1","kind":"SimMachine","region":"sim-1",
		"instanceType":"no-such-type","image":"sim-os-1"}`)
	f.create(class)
	s := serve(t, admin(), "-n", f.namespace)
	b := enter(t, s, "/deployments/"+f.namespace+"/workers")
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = class.Name })
	b.awaitText("no-such-type")
	b.awaitText("InvalidConfiguration")
	var refused string
	f.await("a refused machine", func(*v1beta1.MachineDeployment) bool {
		for _, m := range f.machines() {
			if machinestate.UnlaunchableCondition(&m) != nil {
				refused = m.Name
			}
		}
		return refused != ""
	})
	b.open("/machines/" + f.namespace + "/" + refused)
	b.awaitText("no-such-type")
	b.awaitText("The provider rejects the configuration of the machine.")
	b.open("/machines?state=unsettled")
	b.awaitText(refused)
	// Planning the fix must change nothing.
	manifest := fmt.Sprintf(`{apiVersion: machinist.dev/v1beta1, kind: MachineDeployment, metadata: {name: workers, namespace: %s},
spec: {replicas: 2, selector: {matchLabels: {pool: workers}}, template: {metadata: {labels: {pool: workers}},
spec: {classRef: {name: large}, version: v1.36.3}}}}`, f.namespace)
	b.open("/plan")
	get[bool](b, "(document.getElementById('manifest').value = "+quoted(manifest)+", document.forms[0].requestSubmit(), true)")
	b.await("document.querySelector('.answer')")
	if answer := get[string](b, "document.querySelector('.answer').textContent"); !strings.Contains(answer, "would be replaced") {
		t.Errorf("got the plan %q, want a replacement", answer)
	}
	d := f.await("the deployment", func(*v1beta1.MachineDeployment) bool { return true })
	if got := d.Spec.Template.Spec.ClassRef.Name; got != class.Name {
		t.Errorf("the plan changed the class to %s", got)
	}
}
