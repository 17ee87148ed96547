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

// badNamespace is where the objects are that nobody should have been able to write.
const badNamespace = "bad"

// strictly is how kubectl asks for it.
const strictly = client.FieldValidation(metav1.FieldValidationStrict)

// What the door is there to refuse it refuses, and names the field. With the door off, every object that the schema
// admits is there beside a healthy fleet: the fleet does what it is reported as ever, no process ends or grows or
// writes on and on, whoever owns a bad object reads in it what is wrong, and all of them can be deleted without a
// trace.
//
// Rule: bad-input-names-field.
func TestBadInputHarmsNobody(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{stack.Manager: freeAddress(t), stack.Provider: freeAddress(t)}
	m := start(t, stack.Options{
		ManagerArgs:  []string{"--metrics-bind-address=" + addresses[stack.Manager]},
		ProviderArgs: []string{"--metrics-bind-address=" + addresses[stack.Provider]},
	})
	newAccount(t, m.control, "prometheus", true)
	pids := [2]int{m.Manager.PID(), m.Provider.PID()}
	m.quick()
	m.fleet(3, nil)
	m.running(3)

	b := &badInput{machinist: m, token: newToken(t, m.control, "prometheus"), addresses: addresses}
	b.prepare()
	b.refusedAll()
	b.allowConnections()
	admitted := b.create()

	// The fleet beside them is scaled, rolled and scaled back.
	m.scale(5)
	m.running(5)
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
	m.running(3)

	m.settled()
	before := b.sizes()
	b.quiet()
	b.flat(before, b.sizes())
	b.reported(admitted)
	if now := [2]int{m.Manager.PID(), m.Provider.PID()}; now != pids || !m.Manager.Running() || !m.Provider.Running() {
		t.Errorf("the processes %v ended; now there are %v", pids, now)
	}

	b.deleteAll()
	m.running(3)
	if n := m.live(); n != 3 {
		t.Errorf("%d instances are left, 3 of them the fleet's", n)
	}
	m.noTwins()
}

// badInput is a Machinist with bad objects in it.
type badInput struct {
	*machinist
	token     string
	addresses map[string]string
}

// prepare makes what the bad objects refer to: with it, and without their mistakes, they would be a fleet.
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
		if err := b.control.Create(context.Background(), o, strictly); err != nil {
			b.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// write makes the mistake of the table, under a name of its own where the name is not the mistake.
func (b *badInput) write(i int, bad manifests.Bad) (*unstructured.Unstructured, error) {
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
	if bad.Was == nil {
		return object, b.control.Create(ctx, object, strictly)
	}
	former, err := bad.Former(badNamespace)
	if err != nil {
		b.t.Fatal(err)
	}
	former.SetName(object.GetName())
	if err := b.control.Create(ctx, former, strictly); err != nil && !apierrors.IsAlreadyExists(err) {
		b.t.Errorf("%s: what it was before is refused: %v", bad.Name, err)
	}
	for {
		if err := b.control.Get(ctx, client.ObjectKeyFromObject(former), former); err != nil {
			b.t.Fatal(err)
		}
		if err := bad.Changes.Apply(former); err != nil {
			b.t.Fatal(err)
		}
		if err := b.control.Update(ctx, former, strictly); !apierrors.IsConflict(err) {
			return former, err
		}
	}
}

// complete has machines say what they need to become Nodes, and to be deleted: then a mistake elsewhere is acted upon
// to the end.
func (b *badInput) complete(object *unstructured.Unstructured, bad manifests.Bad) {
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

// refusedAll expects every object of the table to be refused.
func (b *badInput) refusedAll() {
	b.t.Helper()
	for i, bad := range manifests.All() {
		_, err := b.write(i, bad)
		b.requireRejection(bad, err)
	}
}

func (b *badInput) requireRejection(bad manifests.Bad, err error) {
	b.t.Helper()
	if err == nil {
		b.t.Errorf("%s: admitted", bad.Name)
		return
	}
	for _, part := range bad.Reports {
		if !strings.Contains(err.Error(), part) {
			b.t.Errorf("%s: the rejection does not say %q: %.500s", bad.Name, part, err)
		}
	}
}

// allowConnections takes away webhooks and policies, and waits until the API server heeds that.
func (b *badInput) allowConnections() {
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
		b.t.Fatalf("webhooks are left: %v %v", left.Items, err)
	}
	for _, bad := range manifests.All() {
		if bad.By == manifests.BySchema || bad.Was != nil {
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

// create makes every object of the table that the schema admits, and expects it to refuse the others still.
func (b *badInput) create() map[string]manifests.Bad {
	b.t.Helper()
	admitted := map[string]manifests.Bad{}
	for i, bad := range manifests.All() {
		object, err := b.write(i, bad)
		switch {
		case bad.By == manifests.BySchema:
			b.requireRejection(bad, err)
		case err != nil:
			b.t.Errorf("%s: with nothing but the schema it is refused: %v", bad.Name, err)
		default:
			admitted[object.GetKind()+"/"+object.GetName()] = bad
		}
	}
	b.t.Logf("%d bad objects are there", len(admitted))
	return admitted
}

// reported expects that what is wrong with an object can be read in it or in its machines, and that nothing is
// reported twice.
func (b *badInput) reported(admitted map[string]manifests.Bad) {
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
			if acted(bad) && !strings.Contains(text, inCondition(part)) {
				b.t.Errorf("%s: no condition of %s says %q: %.1000s", bad.Name, key, inCondition(part), text)
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
			b.t.Errorf("reported %d times: %s", n, what)
		}
	}
}

// acted says whether what is wrong with an object is Machinist's to act upon. The bounds of an autoscaler and the
// labels of its nodes are for the autoscaler; a malformed priority counts as none, a provider of another name as
// another's, and labels that Machinist sets it sets anyway, but for the provider's in a template, which it refuses.
func acted(bad manifests.Bad) bool {
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

// inCondition is how a condition calls what a rejection calls part: a machine knows nothing of its template.
func inCondition(part string) string {
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

// deleteAll deletes first what names its credentials itself, for which nobody holds the Secret. Then it deletes the
// namespace with all that is in it: Kubernetes deletes in no order, the classes and Secrets that machines use among
// the first.
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
	eventually(b.t, "the namespace is gone", func() (bool, string) {
		err := b.control.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		return apierrors.IsNotFound(err), fmt.Sprint(err, namespace.Status)
	})
}
