//go:build e2e

package ui

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

type fleet struct {
	t         *testing.T
	api       client.WithWatch
	namespace string
}

func newNamespace(t *testing.T) *fleet {
	t.Helper()
	api, err := running.ControlClient()
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ui-"}}
	if err := api.Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	return &fleet{t: t, api: api, namespace: ns.Name}
}

func newFleet(t *testing.T, n int32) *fleet {
	t.Helper()
	f := newNamespace(t)
	objects, err := examples.Fleet()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		o.SetNamespace(f.namespace)
		switch o := o.(type) {
		case *corev1.Secret:
			if o.Name == examples.CredentialsSecret {
				o.StringData = map[string]string{"token": running.CloudToken()}
			}
		case *v1beta1.MachineDeployment:
			o.Spec.Replicas = &n
		}
		f.create(o)
	}
	f.await("an available fleet", func(d *v1beta1.MachineDeployment) bool { return d.Status.AvailableReplicas == n })
	// Nothing deletes the fleet, because the whole control plane is deleted at the end.
	return f
}

func (f *fleet) create(o client.Object) {
	f.t.Helper()
	o.SetNamespace(f.namespace)
	if err := f.api.Create(context.Background(), o); err != nil {
		f.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (f *fleet) await(what string, done func(*v1beta1.MachineDeployment) bool) *v1beta1.MachineDeployment {
	f.t.Helper()
	check := func(l *v1beta1.MachineDeploymentList) (bool, string) {
		return len(l.Items) == 1 && done(&l.Items[0]), fmt.Sprintf("%+v", l.Items)
	}
	list := env.Await(f.t, f.api, &v1beta1.MachineDeploymentList{}, what, check, client.InNamespace(f.namespace))
	return &list.Items[0]
}

func (f *fleet) change(edit func(*v1beta1.MachineDeployment)) {
	f.t.Helper()
	d := f.await("the deployment", func(*v1beta1.MachineDeployment) bool { return true })
	before := d.DeepCopy()
	edit(d)
	if err := f.api.Patch(context.Background(), d, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}
