//go:build e2e

package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// A staticCluster is a control cluster without controllers, so objects keep the state in which a test creates them.
type staticCluster struct {
	t   *testing.T
	cp  *controlplane.ControlPlane
	api client.WithWatch
}

func newStaticCluster(t *testing.T) *staticCluster {
	t.Helper()
	api, err := client.NewWithWatch(static.Config(), client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &staticCluster{t: t, cp: static, api: api}
}

// startStatic starts the control cluster without controllers. For speed, the API server does not validate Machines,
// and stores the status of a Machine in the request that creates the Machine.
func startStatic(dir string) (*controlplane.ControlPlane, error) {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := installStatic(ctx, cp.Config()); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

func installStatic(ctx context.Context, config *rest.Config) error {
	crds := manifests.CRDs()
	preserve := true
	for _, crd := range crds {
		if crd.Spec.Names.Kind != "Machine" {
			continue
		}
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Subresources, crd.Spec.Versions[i].AdditionalPrinterColumns = nil, nil
			crd.Spec.Versions[i].SelectableFields = nil
			crd.Spec.Versions[i].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object",
				XPreserveUnknownFields: &preserve}
		}
	}
	if err := install.Apply(ctx, config, crds...); err != nil {
		return err
	}
	api, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&v1beta1.MachineList{}, &v1beta1.MachineSetList{},
		&v1beta1.MachineDeploymentList{}, &v1beta1.MachineHealthCheckList{}, &v1beta1.MachineClassList{}} {
		served := func(ctx context.Context) (bool, error) { return api.List(ctx, list) == nil, nil }
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, served); err != nil {
			return fmt.Errorf("wait for %T to be served: %w", list, err)
		}
	}
	return nil
}

func (p *staticCluster) createWithStatus(o client.Object) error {
	status := o.DeepCopyObject().(client.Object)
	if err := p.api.Create(context.Background(), o); err != nil {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	switch o.(type) {
	case *v1beta1.MachineDeployment, *v1beta1.MachineSet:
		status.SetResourceVersion(o.GetResourceVersion())
		status.SetUID(o.GetUID())
		if err := p.api.Status().Update(context.Background(), status); err != nil {
			return fmt.Errorf("write the status of %T %s: %w", o, o.GetName(), err)
		}
		o.SetResourceVersion(status.GetResourceVersion())
	}
	return nil
}

func (p *staticCluster) create(o client.Object) {
	p.t.Helper()
	if err := p.createWithStatus(o); err != nil {
		p.t.Fatal(err)
	}
}

func (p *staticCluster) namespace(name string) {
	p.t.Helper()
	p.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (p *staticCluster) leases(namespace string) {
	p.t.Helper()
	for _, name := range []string{"machinist-manager", "machinist-provider-sim"} {
		p.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("host"), LeaseDurationSeconds: ptr.To[int32](3600),
				RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))}})
	}
}

func aged(kind string, status bool, reason, message string, ago time.Duration) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago))}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func template(name string) v1beta1.MachineTemplateSpec {
	return v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": name}},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "large"}, Version: "v1.36.3"}}
}

func owned(by client.Object, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: kind, Name: by.GetName(),
		UID: by.GetUID(), Controller: ptr.To(true)}}
}

func (p *staticCluster) deployment(namespace, name string, replicas int32,
	change func(*v1beta1.MachineDeployment)) *v1beta1.MachineSet {
	p.t.Helper()
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}}
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineDeploymentSpec{Replicas: &replicas, Selector: selector, Template: template(name)}}
	d.Status = v1beta1.MachineDeploymentStatus{ObservedGeneration: 1, CurrentRevision: 1, Replicas: replicas,
		UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []metav1.Condition{aged(v1beta1.ConditionRollingOut, false, v1beta1.ReasonRolloutComplete,
			"All machines are of revision 1.", time.Hour)}}
	if change != nil {
		change(d)
	}
	p.create(d)
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-abcde",
		Annotations: map[string]string{v1beta1.AnnotationRevision: "1"}, OwnerReferences: owned(d, "MachineDeployment")},
		Spec: v1beta1.MachineSetSpec{Replicas: &replicas, Selector: selector, Template: template(name)}}
	p.create(set)
	return set
}

func machine(set *v1beta1.MachineSet, number int) *v1beta1.Machine {
	deployment := strings.TrimSuffix(set.Name, "-abcde")
	name := fmt.Sprintf("%s-%05d", set.Name, number)
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name,
		Labels: map[string]string{"pool": deployment, v1beta1.LabelProvider: "sim", v1beta1.LabelMachineDeployment: deployment,
			v1beta1.LabelMachineSet: set.Name}, OwnerReferences: owned(set, "MachineSet")}, Spec: set.Spec.Template.Spec}
	m.Spec.ProviderID = fmt.Sprintf("sim://sim-1/sim-1%c/i-%017x", 'a'+number%3, number)
	m.Status = v1beta1.MachineStatus{ObservedGeneration: 1, Phase: v1beta1.MachineRunning, Version: "v1.36.3",
		NodeRef: &v1beta1.NodeRef{Name: m.Name}, Instance: &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning,
			Type: "large", Region: "sim-1", Zone: fmt.Sprintf("sim-1%c", 'a'+number%3), Provider: "sim"}}
	for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy,
		v1beta1.ConditionUpToDate, v1beta1.ConditionReady} {
		m.Status.Conditions = append(m.Status.Conditions, aged(kind, true, "Fine", "", time.Hour))
	}
	return m
}

const vanished = "The provider reports that the instance is gone."

func withFailure(m *v1beta1.Machine, message string) *v1beta1.Machine {
	m.Status.Phase = v1beta1.MachineFailed
	m.Status.FailureReason, m.Status.FailureMessage = v1beta1.FailureInstanceVanished, message
	m.Status.Conditions = []metav1.Condition{
		aged(v1beta1.ConditionReady, false, v1beta1.ReasonInstanceVanished, message, time.Minute)}
	return m
}

func (p *staticCluster) machines(all []*v1beta1.Machine) {
	p.t.Helper()
	work, failed := make(chan *v1beta1.Machine), make(chan error, 1)
	var done sync.WaitGroup
	for range 48 {
		done.Add(1)
		go func() {
			defer done.Done()
			for m := range work {
				if err := p.createWithStatus(m); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		}()
	}
	for _, m := range all {
		work <- m
	}
	close(work)
	done.Wait()
	select {
	case err := <-failed:
		p.t.Fatal(err)
	default:
	}
}
