package autoscaling

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
)

func TestChangesOfGroupsThatTriggerPass(t *testing.T) {
	type change = func(*v1beta1.MachineDeployment)
	annotate := func(key, value string) change {
		return func(d *v1beta1.MachineDeployment) { d.Annotations = map[string]string{key: value} }
	}
	group, cpu := annotate(v1beta1.AutoscalerMaxSizeAnnotation, "3"), annotate(v1beta1.AutoscalerCPUAnnotation, "4")
	class := func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "other"} }
	placed := func(class string) change {
		return func(d *v1beta1.MachineDeployment) {
			options := []v1beta1.PlacementOption{{ClassName: class}}
			d.Spec.Placement = &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{{Options: options}}}
		}
	}
	scaled := func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = new(int32(7)) }
	for name, test := range map[string]struct {
		was, is []change
		want    bool
	}{
		"becomes a group":          {nil, []change{group}, true},
		"was a group":              {[]change{group}, nil, true},
		"lost an annotation":       {[]change{cpu}, nil, true},
		"other value":              {[]change{cpu}, []change{annotate(v1beta1.AutoscalerCPUAnnotation, "5")}, true},
		"other class":              {[]change{group}, []change{group, class}, true},
		"other class, not a group": {nil, []change{class}, false},
		"placement":                {[]change{group}, []change{group, placed("a")}, true},
		"other option":             {[]change{group, placed("a")}, []change{group, placed("b")}, true},
		"same options":             {[]change{group, placed("a")}, []change{group, placed("a"), scaled}, false},
		"scaled":                   {[]change{group}, []change{group, scaled}, false},
		"deleted": {[]change{group}, []change{group, func(d *v1beta1.MachineDeployment) {
			d.DeletionTimestamp = &d.CreationTimestamp
		}}, true},
		"created again": {[]change{group}, []change{group, func(d *v1beta1.MachineDeployment) { d.UID = "new" }}, true},
		"other labels of the Nodes": {[]change{group}, []change{group, func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.Spec.Node.Labels = map[string]string{"pool": "web"}
		}}, true},
	} {
		was, is := &v1beta1.MachineDeployment{}, &v1beta1.MachineDeployment{}
		for _, change := range test.was {
			change(was)
		}
		for _, change := range test.is {
			change(is)
		}
		if got := groupChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != test.want {
			t.Errorf("%s: a pass is triggered: %t", name, got)
		}
		if got := groupChanged().Create(event.CreateEvent{Object: is}); got != (len(is.Annotations) > 0) {
			t.Errorf("%s: a pass is triggered by the first event: %t", name, got)
		}
	}
}

func TestChangesOfClassesThatTriggerPass(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineClass)
		want   bool
	}{
		"nothing":           {func(*v1beta1.MachineClass) {}, false},
		"other permissions": {func(c *v1beta1.MachineClass) { c.Spec.ProviderSpec = &runtime.RawExtension{} }, false},
		"created again":     {func(c *v1beta1.MachineClass) { c.UID = "new" }, true},
		"stated capacity":   {func(c *v1beta1.MachineClass) { c.Spec.Capacity = &v1beta1.ClassCapacity{} }, true},
		"reported capacity": {func(c *v1beta1.MachineClass) { c.Status.Capacity = resources("cpu", "2") }, true},
		"reported node":     {func(c *v1beta1.MachineClass) { c.Status.NodeInfo = &v1beta1.NodeInfo{} }, true},
	} {
		is := &v1beta1.MachineClass{}
		test.change(is)
		if got := classChanged().Update(event.UpdateEvent{ObjectOld: &v1beta1.MachineClass{}, ObjectNew: is}); got != test.want {
			t.Errorf("%s: a pass is triggered: %t", name, got)
		}
	}
}

func TestClassTriggersItsGroups(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	class, d, s := &v1beta1.MachineClass{}, &v1beta1.MachineDeployment{}, &v1beta1.MachineSet{}
	for _, o := range []client.Object{class, d, s} {
		o.SetNamespace("ns")
		o.SetName("web")
	}
	byClass := func(client.Object) []string { return []string{class.Name} }
	r := New(Options{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(d, s).
		WithIndex(d, deploymentsByClass, byClass).WithIndex(s, setsByClass, byClass).Build()})
	got := r.groupsOf(t.Context(), class)
	if len(got) != 2 || got[0] != keyOf(kindDeployment, d) || got[1] != keyOf(kindSet, s) {
		t.Errorf("the class triggers %v", got)
	}
}
