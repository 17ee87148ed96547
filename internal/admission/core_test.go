package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/api/v1beta1"
)

type reader struct {
	classes     []v1beta1.MachineClass
	deployments []v1beta1.MachineDeployment
	sets        []v1beta1.MachineSet
	err         error
}

func (r reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, class := range r.classes {
		if class.Name == key.Name && r.err == nil {
			class.DeepCopyInto(into.(*v1beta1.MachineClass))
			return nil
		}
	}
	if r.err != nil {
		return r.err
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "machineclasses"}, key.Name)
}

func (r reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	switch list := into.(type) {
	case *v1beta1.MachineClassList:
		o := &client.ListOptions{}
		o.ApplyOptions(options)
		for _, class := range r.classes {
			if o.FieldSelector.String() == "metadata.name="+class.Name {
				list.Items = append(list.Items, class)
			}
		}
	case *v1beta1.MachineDeploymentList:
		list.Items = r.deployments
	case *v1beta1.MachineSetList:
		list.Items = r.sets
	}
	return r.err
}

func small() v1beta1.MachineClass {
	return v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
}

// Rule: update-refused-for-new-errors.
func TestOnlyNewErrorsAreRefused(t *testing.T) {
	core := NewCoreWebhook(scheme(), reader{classes: []v1beta1.MachineClass{small()}}, reader{})
	with := func(labels ...string) *v1beta1.Machine {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: v1beta1.MachineSpec{ClassRef: classRef()}}
		m.Spec.Node.Labels = map[string]string{}
		for _, l := range labels {
			m.Spec.Node.Labels[l] = "x"
		}
		return m
	}
	bad, fine := with(v1beta1.NodeLabelMachine), with("mine")
	deleted := bad.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.Unix(1e9, 0))
	worse := bad.DeepCopy()
	worse.Spec.Node.Annotations = map[string]string{v1beta1.NodeAnnotationMachine: "x"}
	for name, test := range map[string]struct {
		now, before *v1beta1.Machine
		refused     string
	}{
		"created valid":             {now: fine},
		"created invalid":           {now: bad, refused: "spec.node.labels[machinist.dev/machine]"},
		"invalid as before":         {now: with(v1beta1.NodeLabelMachine, "mine"), before: bad},
		"invalid with a new error":  {now: worse, before: bad, refused: "spec.node.annotations[machinist.dev/machine]"},
		"changed to invalid":        {now: bad, before: fine, refused: "spec.node.labels[machinist.dev/machine]"},
		"changed to valid":          {now: fine, before: bad},
		"invalid and being deleted": {now: deleted, before: fine},
	} {
		t.Run(name, func(t *testing.T) {
			var before client.Object
			if test.before != nil {
				before = test.before
			}
			answer := core.Handle(t.Context(), request(t, "Machine", test.now, before))
			if answer.Allowed != (test.refused == "") {
				t.Fatalf("allowed=%v: %v", answer.Allowed, answer.Result)
			}
			if causes := answer.Result.Details; !answer.Allowed &&
				(len(causes.Causes) != 1 || causes.Causes[0].Field != test.refused) {
				t.Errorf("refused for %+v, want %s", causes.Causes, test.refused)
			}
		})
	}
}

// Rule: unwise-is-warned.
func TestClassesAreReadFromCacheThenLive(t *testing.T) {
	fails := reader{err: errors.New("away")}
	has, hasNot := reader{classes: []v1beta1.MachineClass{small()}}, reader{}
	for name, test := range map[string]struct {
		cache, live     reader
		warned, refused bool
	}{
		"in the cache":        {cache: has, live: fails, refused: true},
		"created just before": {cache: hasNot, live: has, refused: true},
		"does not exist":      {cache: hasNot, live: hasNot, warned: true},
		"not in the cache, and the API server fails": {cache: hasNot, live: fails},
		"the cache fails": {cache: fails, live: has},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: v1beta1.MachineSpec{ClassRef: classRef(),
				ProviderID: "sim:///1"}}
			answer := NewCoreWebhook(scheme(), test.cache, test.live).Handle(t.Context(), request(t, "Machine", m, nil))
			if answer.Allowed == test.refused || (len(answer.Warnings) > 0) != test.warned {
				t.Errorf("allowed=%v, warnings %q: %v", answer.Allowed, answer.Warnings, answer.Result)
			}
		})
	}
}

// Rule: unwise-is-warned.
func TestOverlapIgnoresDeletedAndOwnedSets(t *testing.T) {
	leaving, owned := *deploymentNamed("leaving"), *setNamed("owned")
	leaving.DeletionTimestamp = &metav1.Time{}
	yes := true
	owned.OwnerReferences = []metav1.OwnerReference{{Controller: &yes}}
	cache := reader{
		classes:     []v1beta1.MachineClass{small()},
		deployments: []v1beta1.MachineDeployment{*deploymentNamed("d"), leaving},
		sets:        []v1beta1.MachineSet{owned, *setNamed("s")},
	}
	answer := NewCoreWebhook(scheme(), cache, reader{}).Handle(t.Context(),
		request(t, "MachineDeployment", deploymentNamed("d"), nil))
	if len(answer.Warnings) != 1 || !strings.Contains(answer.Warnings[0], ": MachineSet s. Give") {
		t.Errorf("warned of %q, want the set s", answer.Warnings)
	}
	answer = NewCoreWebhook(scheme(), reader{err: errors.New("away")}, reader{}).Handle(t.Context(),
		request(t, "MachineDeployment", deploymentNamed("d"), nil))
	if !answer.Allowed || len(answer.Warnings) > 0 {
		t.Errorf("without a cache: allowed=%v, warnings %q", answer.Allowed, answer.Warnings)
	}
}

func TestEveryKindIsValidated(t *testing.T) {
	core := NewCoreWebhook(scheme(), reader{}, reader{})
	bad := map[string]string{v1beta1.NodeLabelMachine: "x"}
	set, deployment := setNamed("s"), deploymentNamed("d")
	set.Spec.Template.Spec.Node.Labels, deployment.Spec.Template.Spec.Node.Labels = bad, bad
	for kind, object := range map[string]client.Object{
		"MachineSet": set, "MachineDeployment": deployment,
		"MachineHealthCheck": &v1beta1.MachineHealthCheck{Spec: v1beta1.MachineHealthCheckSpec{
			UnhealthyNodeConditions: []v1beta1.UnhealthyNodeCondition{{Type: "not ready", Status: "True"}}}},
		"MachineDisruptionBudget": &v1beta1.MachineDisruptionBudget{Spec: v1beta1.MachineDisruptionBudgetSpec{
			MaxDisrupted: intstr.FromString("many")}},
		"MachineClass": &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Capacity: &v1beta1.ClassCapacity{Zone: "a,b"}}},
	} {
		if answer := core.Handle(t.Context(), request(t, kind, object, nil)); answer.Allowed {
			t.Errorf("%s is not validated", kind)
		}
		garbled := request(t, kind, object, nil)
		garbled.Object.Raw = []byte("{")
		if answer := core.Handle(t.Context(), garbled); answer.Allowed || answer.Result.Code != 400 {
			t.Errorf("%s that cannot be read: allowed=%v %v", kind, answer.Allowed, answer.Result)
		}
	}
	if answer := core.Handle(t.Context(), request(t, "Stranger", set, nil)); !answer.Allowed {
		t.Errorf("another kind is refused: %v", answer.Result)
	}
}

func TestProcessForOneNamespaceAdmitsOtherNamespaces(t *testing.T) {
	no := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Denied("no")
	})
	for only, allowed := range map[string]bool{"": false, "default": false, "other": true} {
		if answer := onlyNamespace(only, no).Handle(t.Context(), request(t, "Machine", &v1beta1.Machine{},
			nil)); answer.Allowed != allowed {
			t.Errorf("for %q: allowed=%v", only, answer.Allowed)
		}
	}
}
