//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	rendered "machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests"
)

const badNamespace = "bad"

const strictValidation = client.FieldValidation(metav1.FieldValidationStrict)

// Admission refuses every bad object with a message that names the field. Then the test removes webhooks and policies,
// and creates every bad object that the schema admits next to a healthy fleet. The fleet must keep working. The
// processes must not exit, use more and more memory, or send more and more writes. The bad objects' conditions report
// the mistakes, and all of the objects can be deleted.
//
// Rule: bad-input-names-field.
func TestBadInputIsRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{stack.Manager: freeAddress(t), stack.Provider: freeAddress(t)}
	m := start(t, stack.Options{
		ManagerArgs:  []string{"--metrics-bind-address=" + addresses[stack.Manager]},
		ProviderArgs: []string{"--metrics-bind-address=" + addresses[stack.Provider]},
	})
	newAccount(t, m.control, "prometheus", true)
	pids := [2]int{m.Manager.PID(), m.Provider.PID()}
	m.removeDelays()
	m.createFleet(3, nil)
	m.awaitRunning(3)

	b := &badInput{machinist: m, token: newToken(t, m.control, "prometheus"), addresses: addresses}
	b.prepare()
	b.wantAllRejected()
	b.removeAdmission()
	admitted := b.createAll()

	// Change the healthy fleet: scale it up, roll out a change, and scale it down again.
	m.scale(5)
	m.awaitRunning(5)
	m.rollTo(examples.LargeClass)
	m.await("five machines of the other class", func(machines []v1beta1.Machine) bool {
		n := 0
		for _, machine := range machines {
			if machine.Spec.ClassRef.Name == examples.LargeClass && machine.Status.Phase == v1beta1.MachineRunning {
				n++
			}
		}
		return n == 5 && len(machines) == 5
	})
	m.scale(3)
	m.awaitRunning(3)

	m.awaitNoWrites()
	before := b.processSizes()
	b.wantNoWrites()
	b.wantNoGrowth(before, b.processSizes())
	b.wantReported(admitted)
	if now := [2]int{m.Manager.PID(), m.Provider.PID()}; now != pids || !m.Manager.IsRunning() || !m.Provider.IsRunning() {
		t.Errorf("a process ended: got PIDs %v, want %v", now, pids)
	}

	b.deleteAll()
	m.awaitRunning(3)
	if n := m.countLive(); n != 3 {
		t.Errorf("got %d instances, want the 3 of the fleet", n)
	}
	m.wantNoTwins()
}

type badInput struct {
	*machinist
	token     string
	addresses map[string]string
}

func (b *badInput) prepare() {
	b.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		b.t.Fatal(err)
	}
	objects = append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: badNamespace}}}, objects...)
	for _, o := range objects {
		switch o := o.(type) {
		case *v1beta1.MachineDeployment:
			continue
		case *corev1.Secret:
			if o.Name == examples.CredentialsSecret {
				o.StringData = map[string]string{"token": b.CloudToken()}
			}
		}
		if _, cluster := o.(*corev1.Namespace); !cluster {
			o.SetNamespace(badNamespace)
		}
		if err := b.control.Create(context.Background(), o, strictValidation); err != nil {
			b.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// write creates or updates an object that contains one mistake of the table. write gives the object a unique name,
// except if the mistake is in the name.
func (b *badInput) write(i int, bad manifests.InvalidObject) (*unstructured.Unstructured, error) {
	b.t.Helper()
	ctx := context.Background()
	object, err := bad.Object(badNamespace)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, named := bad.Changes["metadata/name"]; !named {
		object.SetName(fmt.Sprintf("bad-%d", i))
	}
	b.complete(object, bad)
	if bad.ChangesBefore == nil {
		return object, b.control.Create(ctx, object, strictValidation)
	}
	former, err := bad.ValidObject(badNamespace)
	if err != nil {
		b.t.Fatal(err)
	}
	former.SetName(object.GetName())
	if err := b.control.Create(ctx, former, strictValidation); err != nil && !apierrors.IsAlreadyExists(err) {
		b.t.Errorf("%s: create the object before the update: %v", bad.Name, err)
	}
	for {
		if err := b.control.Get(ctx, client.ObjectKeyFromObject(former), former); err != nil {
			b.t.Fatal(err)
		}
		if err := bad.Changes.Apply(former); err != nil {
			b.t.Fatal(err)
		}
		if err := b.control.Update(ctx, former, strictValidation); !apierrors.IsConflict(err) {
			return former, err
		}
	}
}

// complete prepares an object so that its machines can join and be deleted. After that, the mistake in the object is
// the only possible cause of a problem.
func (b *badInput) complete(object *unstructured.Unstructured, bad manifests.InvalidObject) {
	b.t.Helper()
	at := map[string]string{"Machine": "spec", "MachineSet": "spec/template/spec",
		"MachineDeployment": "spec/template/spec"}[object.GetKind()]
	spec, found, err := unstructured.NestedMap(object.Object, strings.Split(at, "/")...)
	if err != nil || !found {
		return
	}
	more := manifests.Changes{}
	if _, classed := spec["classRef"]; classed && spec["version"] == nil {
		more[at+"/version"] = "v1.36.3"
	}
	if _, inline := spec["provider"]; inline && spec["credentialsRef"] == nil {
		more[at+"/credentialsRef"] = manifests.Ref(examples.CredentialsSecret)
	}
	if err := more.Apply(object); err != nil {
		b.t.Fatalf("%s: %v", bad.Name, err)
	}
}

func (b *badInput) wantAllRejected() {
	b.t.Helper()
	for i, bad := range manifests.InvalidObjects() {
		_, err := b.write(i, bad)
		b.wantRejected(bad, err)
	}
}

func (b *badInput) wantRejected(bad manifests.InvalidObject, err error) {
	b.t.Helper()
	if err == nil {
		b.t.Errorf("%s: the object was admitted", bad.Name)
		return
	}
	for _, part := range bad.Reports {
		if !strings.Contains(err.Error(), part) {
			b.t.Errorf("%s: the rejection does not contain %q: %.500s", bad.Name, part, err)
		}
	}
}

func (b *badInput) removeAdmission() {
	b.t.Helper()
	ctx := context.Background()
	guards := append([]client.Object{rendered.ManagerWebhook(""), rendered.ProviderWebhook(driver.Name, "")}, rendered.Policies()...)
	for _, admission := range guards {
		if err := b.control.Delete(ctx, admission); err != nil {
			b.t.Fatalf("delete %T %s: %v", admission, admission.GetName(), err)
		}
	}
	left := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := b.control.List(ctx, left); err != nil || len(left.Items) > 0 {
		b.t.Fatalf("got webhooks %v, error %v; want none", left.Items, err)
	}
	for _, bad := range manifests.InvalidObjects() {
		if bad.By == manifests.BySchema || bad.ChangesBefore != nil {
			continue
		}
		object, err := bad.Object(badNamespace)
		if err != nil {
			b.t.Fatal(err)
		}
		object.SetName("probe")
		eventually(b.t, bad.Name+" is admitted", func() (bool, string) {
			err := b.control.Create(ctx, object.DeepCopy(), client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// createAll creates the objects of the table that the schema admits, and requires that the schema refuses all others.
func (b *badInput) createAll() map[string]manifests.InvalidObject {
	b.t.Helper()
	admitted := map[string]manifests.InvalidObject{}
	for i, bad := range manifests.InvalidObjects() {
		object, err := b.write(i, bad)
		switch {
		case bad.By == manifests.BySchema:
			b.wantRejected(bad, err)
		case err != nil:
			b.t.Errorf("%s: the object is refused without webhooks and policies: %v", bad.Name, err)
		default:
			admitted[object.GetKind()+"/"+object.GetName()] = bad
		}
	}
	b.t.Logf("created %d bad objects", len(admitted))
	return admitted
}

// wantReported requires that the conditions of each object, or of its machines, report the mistake. No warning may
// appear twice.
func (b *badInput) wantReported(admitted map[string]manifests.InvalidObject) {
	b.t.Helper()
	ctx := context.Background()
	machines := &v1beta1.MachineList{}
	if err := b.control.List(ctx, machines, client.InNamespace(badNamespace)); err != nil {
		b.t.Fatal(err)
	}
	for key, bad := range admitted {
		kind, name, _ := strings.Cut(key, "/")
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
		if err := b.control.Get(ctx, client.ObjectKey{Namespace: badNamespace, Name: name}, object); err != nil {
			b.t.Errorf("%s: %v", bad.Name, err)
			continue
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		text := fmt.Sprint(conditions)
		for _, m := range machines.Items {
			if kind != "Machine" && strings.HasPrefix(m.Name, name+"-") {
				text += fmt.Sprint(m.Status.Conditions)
			}
		}
		for _, part := range bad.Reports {
			if hasEffect(bad) && !strings.Contains(text, conditionText(part)) {
				b.t.Errorf("%s: no condition of %s contains %q: %.1000s", bad.Name, key, conditionText(part), text)
			}
		}
	}
	events := &corev1.EventList{}
	if err := b.control.List(ctx, events, client.InNamespace(badNamespace)); err != nil {
		b.t.Fatal(err)
	}
	count := map[string]int32{}
	for _, e := range events.Items {
		if e.Type != corev1.EventTypeWarning {
			continue
		}
		count[fmt.Sprintf("%s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)] += e.Count
	}
	b.t.Logf("%d warnings", len(count))
	for what, n := range count {
		if n > 1 {
			b.t.Errorf("warning was reported %d times: %s", n, what)
		}
	}
}

// hasEffect reports whether Machinist must report the mistake in a condition. Wrong group sizes and node labels concern
// only an autoscaler. A malformed priority counts as none. An object with the name of another provider belongs to that
// provider. In templates, Machinist overwrites all labels of its own, except the provider's label, which it refuses.
func hasEffect(bad manifests.InvalidObject) bool {
	switch bad.By {
	case manifests.ByPolicy:
		switch bad.Reports[0] {
		case "spec.template.metadata.annotations":
			return true
		case "spec.template.metadata.labels":
			return bad.Reports[1] == v1beta1.LabelProvider
		}
		return strings.Contains(bad.Reports[0], "preserve") || strings.Contains(bad.Reports[0], "providerSpec")
	case manifests.ByManager:
		return !strings.Contains(bad.Reports[0], "capacity")
	}
	return true
}

// conditionText converts a part of a rejection message to the text of a condition. For example, a message about a
// template contains the path spec.template.spec.providerSpec, but the condition of a machine contains only
// providerSpec.
func conditionText(part string) string {
	if i := strings.Index(part, "providerSpec"); i >= 0 {
		return part[i:]
	}
	if strings.Contains(part, "selector") {
		return "spec.selector"
	}
	if part == "spec.providerID" {
		return "spec.adoption"
	}
	return strings.TrimPrefix(part, "spec.template.")
}

// deleteAll deletes the objects without a class first, because their Secret has no finalizer. deleteAll then deletes
// the namespace. Kubernetes deletes the content in any order, so classes and Secrets may go before their machines.
func (b *badInput) deleteAll() {
	b.t.Helper()
	ctx := context.Background()
	inline := func(s *v1beta1.MachineSpec) bool { return s.ClassRef == nil }
	remove := func(o client.Object) {
		if err := b.control.Delete(ctx, o,
			client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			b.t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
		}
	}
	deployments, sets, machines := &v1beta1.MachineDeploymentList{}, &v1beta1.MachineSetList{}, &v1beta1.MachineList{}
	for _, list := range []client.ObjectList{deployments, sets, machines} {
		if err := b.control.List(ctx, list, client.InNamespace(badNamespace)); err != nil {
			b.t.Fatal(err)
		}
	}
	for i := range deployments.Items {
		if inline(&deployments.Items[i].Spec.Template.Spec) {
			remove(&deployments.Items[i])
		}
	}
	for i := range sets.Items {
		if inline(&sets.Items[i].Spec.Template.Spec) {
			remove(&sets.Items[i])
		}
	}
	for i := range machines.Items {
		if inline(&machines.Items[i].Spec) {
			remove(&machines.Items[i])
		}
	}
	env.Await(b.t, b.control, &v1beta1.MachineList{}, "no machine without a class",
		func(l *v1beta1.MachineList) (bool, string) {
			left := slices.DeleteFunc(slices.Clone(l.Items), func(m v1beta1.Machine) bool { return !inline(&m.Spec) })
			return len(left) == 0, describe(left)
		}, client.InNamespace(badNamespace))

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: badNamespace}}
	remove(namespace)
	eventually(b.t, "the namespace is deleted", func() (bool, string) {
		err := b.control.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		return apierrors.IsNotFound(err), fmt.Sprint(err, namespace.Status)
	})
}
