package merge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func deployment(name, class string, replicas int32) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
	d.Spec.Replicas = &replicas
	d.Spec.Selector.MatchLabels = map[string]string{"pool": name}
	d.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": name, "team": "web"}
	d.Spec.Template.Spec = v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}, Version: "v1.36.3"}
	d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRollingOut, Status: metav1.ConditionFalse}}
	return d
}

func inZone(name, zone string) *v1beta1.MachineClass {
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Status.NodeInfo = &v1beta1.NodeInfo{Zone: zone}
	return class
}

func input(deployments ...*v1beta1.MachineDeployment) Input {
	return Input{Namespace: "prod", Name: "web", LabelKey: "fleet", LabelValue: "web", Deployments: deployments,
		Classes: map[string]*v1beta1.MachineClass{"a": inZone("a", "EU_1"), "b": inZone("b", "eu-2"),
			"c":   inZone("c", "eu-2"),
			"new": {}}}
}

// domainsOf returns the domains of a plan with their classes.
func domainsOf(p *Plan) (texts []string) {
	for _, d := range p.Deployment.Spec.Placement.Domains {
		text := d.Name
		for _, o := range d.Options {
			text += " " + o.ClassName
		}
		texts = append(texts, text)
	}
	return texts
}

// Rule: placement-merge-replaces-no-machine.
func TestDomains(t *testing.T) {
	for name, test := range map[string]struct {
		from    string
		classes []string
		want    []string
		fails   string
	}{
		"by zone":             {classes: []string{"a", "b", "c"}, want: []string{"eu-1 a", "eu-2 b c"}},
		"by deployment":       {from: DomainFromDeployment, classes: []string{"a", "b", "c"}, want: []string{"web-a a", "web-b b", "web-c c"}},
		"a zone is not known": {classes: []string{"a", "new"}, want: []string{"web-a a", "web-new new"}},
		"a zone is required":  {from: DomainFromZone, classes: []string{"a", "new"}, fails: "the zone of class new is not known"},
		"one class twice":     {from: DomainFromDeployment, classes: []string{"a", "a"}, fails: "must differ"},
		"only one deployment": {classes: []string{"a"}, fails: "at least two"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*v1beta1.MachineDeployment
			for _, class := range test.classes {
				all = append(all, deployment("web-"+class, class, 2))
			}
			in := input(all...)
			in.DomainFrom = test.from
			p, err := New(in)
			switch {
			case test.fails != "":
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("got %v, want %q", err, test.fails)
				}
			case err != nil:
				t.Error(err)
			case !slices.Equal(domainsOf(p), test.want):
				t.Errorf("got %q, want %q", domainsOf(p), test.want)
			}
		})
	}
}

// Rule: placement-merge-replaces-no-machine.
func TestDeploymentsThatCannotBeMerged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineDeployment)
		want   string
	}{
		"another version": {func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = "v1.36.1" }, "replaces machines"},
		"being deleted":   {func(d *v1beta1.MachineDeployment) { d.DeletionTimestamp = &metav1.Time{} }, "being deleted"},
		"paused":          {func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true }, "paused"},
		"frozen":          {func(d *v1beta1.MachineDeployment) { d.Labels = map[string]string{v1beta1.LabelFreeze: ""} }, "freezes it"},
		"not observed":    {func(d *v1beta1.MachineDeployment) { d.Generation = 2 }, "last change"},
		"rolling out":     {func(d *v1beta1.MachineDeployment) { d.Status.Conditions[0].Status = metav1.ConditionTrue }, "rollout is not complete"},
		"at its partition": {func(d *v1beta1.MachineDeployment) {
			d.Status.Conditions[0].Reason = v1beta1.ReasonPartitionReached
		}, "rollout is not complete"},
		"without a class":   {func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef = nil }, "no classRef"},
		"the merged name":   {func(d *v1beta1.MachineDeployment) { d.Name = "web" }, "must differ"},
		"the class is used": {func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "a" }, "Duplicate value"},
	} {
		second := deployment("web-b", "b", 1)
		test.change(second)
		if _, err := New(input(deployment("web-a", "a", 1), second)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestMergedDeployment(t *testing.T) {
	a, b := deployment("web-a", "a", 3), deployment("web-b", "b", 2)
	a.Annotations = map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "1", v1beta1.AutoscalerMaxSizeAnnotation: "5"}
	b.Annotations = map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "2", v1beta1.AutoscalerMaxSizeAnnotation: "7"}
	b.Spec.Template.Spec.Node.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	in := input(a, b)
	in.Checks = []v1beta1.MachineHealthCheck{{ObjectMeta: metav1.ObjectMeta{Name: "by-pool"}}, {ObjectMeta: metav1.ObjectMeta{Name: "by-team"}}}
	in.Checks[0].Spec.Selector.MatchLabels = map[string]string{"pool": "web-b"}
	in.Checks[1].Spec.Selector.MatchLabels = map[string]string{"team": "web"}
	p, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Deployment
	if d.ReplicasOrDefault() != 5 || d.Spec.Selector.MatchLabels["fleet"] != "web" || d.Spec.Template.Spec.ClassRef != nil ||
		d.Annotations[v1beta1.AutoscalerMinSizeAnnotation] != "3" || d.Annotations[v1beta1.AutoscalerMaxSizeAnnotation] != "12" {
		t.Errorf("got %+v", d)
	}
	if labels := d.Spec.Template.ObjectMeta.Labels; len(labels) != 2 || labels["team"] != "web" ||
		labels["fleet"] != "web" {
		t.Errorf("labels of the template: %v", labels)
	}
	warnings := strings.Join(p.Warnings, "\n")
	for _, want := range []string{"machinehealthcheck/by-pool does not select", "machinedeployment/web-b: spec.template.spec.node.taints"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning %q in:\n%s", want, warnings)
		}
	}
	if strings.Contains(warnings, "by-team") {
		t.Errorf("a health check that still selects the machines is named:\n%s", warnings)
	}
	if a.Spec.Template.Spec.ClassRef == nil || len(a.Spec.Template.ObjectMeta.Labels) != 2 ||
		a.Spec.Template.ObjectMeta.Labels["pool"] == "" {
		t.Error("the plan changed a deployment")
	}
}
