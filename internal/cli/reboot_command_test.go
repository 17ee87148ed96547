package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

// Rule: reboot-once.
func TestRebootSetsTheAnnotation(t *testing.T) {
	p := newTestFleet(t)
	m := p.machine("alone", nil)
	leaving := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "leaving",
		Finalizers: []string{"test.machinist.dev/hold"}}, Spec: spec()}
	p.create(leaving)
	if err := p.api.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	stopped := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "stopped"}, Spec: spec()}
	stopped.Spec.PowerState = v1beta1.PowerStopped
	p.create(stopped)
	run := func(args ...string) outcome { return execute(t, append(args, "-n", p.namespace)...) }
	run("reboot", "machine/nowhere").fails(t, `machine "nowhere" not found`)
	run("reboot", "md/web").fails(t, `the type "md" is not one of: machine`)
	run("reboot", "machine/leaving").fails(t, `machine "leaving" is being deleted`)
	run("reboot", "machine/stopped").fails(t, `machine "stopped" is stopped`)
	run("reboot", "machine/alone", "-o", "yaml").succeeds(t).prints(t, "kind: RebootResult", "request: ")
	now := &v1beta1.Machine{}
	if err := env.Client(t).Get(t.Context(), client.ObjectKeyFromObject(m), now); err != nil {
		t.Fatal(err)
	}
	if now.Annotations[v1beta1.AnnotationReboot] == "" {
		t.Error("the machine does not have the annotation")
	}
	run("reboot", "machine/alone").fails(t, `machine "alone" is already being rebooted`, "machinist why machine/alone")
}
