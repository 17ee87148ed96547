package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: why-says-who-owns-no-machine.
func TestWhyOfMachineWithoutOwner(t *testing.T) {
	p := newTestFleet(t)
	set := p.fleet()
	m := p.machine("released", nil)
	m.Annotations = map[string]string{v1beta1.AnnotationReleasedFrom: string(metav1.GetControllerOf(set).UID)}
	m.Labels["pool"] = "another"
	if err := p.api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	p.run("why", "machine/released").succeeds(t).prints(t, "MachineSet "+set.Name+" released the machine",
		"pool=web")
}

func TestWhyOfClass(t *testing.T) {
	p := newTestFleet(t)
	c := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "tiny"}}
	c.Spec.Provider = "sim"
	c.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{}`)}
	p.create(c)
	p.run("why", "mclass/tiny").succeeds(t).prints(t, "machineclass/tiny", "has not checked the class yet")
	p.run("why", "machineclass", "absent").fails(t, `machineclass "absent" not found`)
}
