//go:build e2e

package ui

import (
	"fmt"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
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
