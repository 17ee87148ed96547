package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testclock "k8s.io/utils/clock/testing"

	"machinist.dev/machinist/api/v1beta1"
)

// domain returns a domain with a class for each option.
func domain(name string, classes ...string) v1beta1.PlacementDomain {
	d := v1beta1.PlacementDomain{Name: name}
	for _, class := range classes {
		d.Options = append(d.Options, v1beta1.PlacementOption{ClassName: class})
	}
	return d
}

func bounded(d v1beta1.PlacementDomain, smallest int32, largest *int32) v1beta1.PlacementDomain {
	d.MinReplicas, d.MaxReplicas = smallest, largest
	return d
}

// placed returns a deployment whose machines are in the domains.
func placed(replicas int32, domains ...v1beta1.PlacementDomain) *v1beta1.MachineDeployment {
	d := deploymentNamed("web")
	d.Spec.Template.Spec.ClassRef, d.Spec.Replicas = nil, &replicas
	d.Spec.Placement = &v1beta1.Placement{Domains: domains}
	return d
}

func classNamed(name, provider, architecture string) v1beta1.MachineClass {
	class := v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Provider = provider
	if architecture != "" {
		class.Status.NodeInfo = &v1beta1.NodeInfo{Architecture: architecture, OperatingSystem: "linux"}
	}
	return class
}

func classesNamed(classes ...v1beta1.MachineClass) Environment {
	return Environment{Class: func(name string) (*v1beta1.MachineClass, bool) {
		i := slices.IndexFunc(classes, func(c v1beta1.MachineClass) bool { return c.Name == name })
		if i < 0 {
			return nil, false
		}
		return &classes[i], true
	}}
}

// Rules: manager-webhook-refuses, unwise-is-warned.
func TestPlacementBounds(t *testing.T) {
	most := ptr.To[int32]
	closed := domain("b", "y")
	closed.Weight = most(0)
	for name, test := range map[string]struct {
		d           *v1beta1.MachineDeployment
		annotations map[string]string
		want
	}{
		"within the bounds":    {d: placed(5, bounded(domain("a", "x"), 2, most(3)), bounded(domain("b", "y"), 0, most(2)))},
		"one domain unlimited": {d: placed(500, bounded(domain("a", "x"), 0, nil), bounded(domain("b", "y"), 0, most(2)))},
		"more than the domains may have": {d: placed(6, bounded(domain("a", "x"), 0, most(3)), bounded(domain("b", "y"), 0, most(2))),
			want: want{errors: []string{"spec.replicas: Invalid value: 6: the domains may have at most 5 machines together"}}},
		"a domain without new machines does not count": {
			d:    placed(6, bounded(domain("a", "x"), 0, most(3)), closed),
			want: want{errors: []string{"spec.replicas: Invalid value: 6: the domains may have at most 3 machines together"}}},
		"more than the domains may have, set by an autoscaler": {d: placed(6, bounded(domain("a", "x"), 0, most(5))),
			annotations: map[string]string{v1beta1.AutoscalerMaxSizeAnnotation: "5"},
			want:        want{warnings: []string{"spec.replicas: 6 machines are wanted, but the domains may have at most 5"}}},
		"a node group that may become too large": {d: placed(5, bounded(domain("a", "x"), 0, most(5))),
			annotations: map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "1", v1beta1.AutoscalerMaxSizeAnnotation: "6"},
			want: want{warnings: []string{"metadata.annotations[" + v1beta1.AutoscalerMaxSizeAnnotation +
				"]: the autoscaler may ask for 6 machines, but the domains may have at most 5"}}},
		"fewer than minReplicas": {d: placed(3, bounded(domain("a", "x"), 2, nil), bounded(domain("b", "y"), 2, nil)),
			want: want{warnings: []string{"spec.replicas: 3 machines are wanted, but minReplicas of the domains add up to 4"}}},
		"scaled to zero": {d: placed(0, bounded(domain("a", "x"), 2, nil))},
	} {
		t.Run(name, func(t *testing.T) {
			test.d.Annotations = test.annotations
			test.check(t, ValidateDeployment(test.d, Environment{}))
			set := setNamed("web")
			set.Spec.Template, set.Spec.Placement = test.d.Spec.Template, test.d.Spec.Placement
			set.Spec.Replicas, set.Annotations = test.d.Spec.Replicas, test.annotations
			test.check(t, ValidateSet(set, Environment{}))
			// The bounds apply to all sets of the deployment together.
			set.OwnerReferences = []metav1.OwnerReference{{Controller: ptr.To(true)}}
			want{}.check(t, ValidateSet(set, Environment{}))
		})
	}
}

// Rules: manager-webhook-refuses, unwise-is-warned.
func TestClassesOfPlacement(t *testing.T) {
	leaving := classNamed("leaving", "openstack", "amd64")
	leaving.DeletionTimestamp = &metav1.Time{}
	stated := classNamed("stated", "openstack", "amd64")
	stated.Spec.Capacity = &v1beta1.ClassCapacity{Architecture: "arm64"}
	windows := classNamed("windows", "openstack", "amd64")
	windows.Status.NodeInfo.OperatingSystem = "windows"
	known := classesNamed(classNamed("a", "openstack", "amd64"), classNamed("b", "openstack", "amd64"),
		classNamed("new", "openstack", ""), classNamed("azure", "azure", "amd64"), leaving, stated, windows)
	const at = "spec.placement.domains[%d].options[%d].className: "
	for name, test := range map[string]struct {
		domains []v1beta1.PlacementDomain
		want
	}{
		"equal":                {domains: []v1beta1.PlacementDomain{domain("a", "a"), domain("b", "b", "new")}},
		"the first is unknown": {domains: []v1beta1.PlacementDomain{domain("a", "new", "a")}},
		"missing": {domains: []v1beta1.PlacementDomain{domain("a", "a", "gone")},
			want: want{warnings: []string{fmt.Sprintf(at, 0, 1) + "the MachineClass gone does not exist"}}},
		"many are missing": {domains: []v1beta1.PlacementDomain{domain("a", "1", "2", "a"), domain("b", "3", "4", "5")},
			want: want{warnings: []string{fmt.Sprintf(at, 0, 0), fmt.Sprintf(at, 0, 1), fmt.Sprintf(at, 1, 0),
				"spec.placement.domains: 2 more MachineClasses"}}},
		"being deleted": {domains: []v1beta1.PlacementDomain{domain("a", "a"), domain("b", "leaving")},
			want: want{warnings: []string{fmt.Sprintf(at, 1, 0) + "the MachineClass leaving is being deleted"}}},
		"two providers": {domains: []v1beta1.PlacementDomain{domain("a", "a"), domain("b", "b", "azure")},
			want: want{errors: []string{fmt.Sprintf(at, 1, 1) + `Invalid value: "azure": the provider of this MachineClass is azure, ` +
				"and the provider of the MachineClass a is openstack"}}},
		"two architectures": {domains: []v1beta1.PlacementDomain{domain("a", "b", "stated")}, want: want{warnings: []string{
			fmt.Sprintf(at, 0, 1) + "the architecture of the MachineClass stated is arm64, and that of the MachineClass b is amd64"}}},
		"two operating systems": {domains: []v1beta1.PlacementDomain{domain("a", "b", "windows")}, want: want{warnings: []string{
			fmt.Sprintf(at, 0, 1) + "the operating system of the MachineClass windows is windows"}}},
		"one class twice": {domains: []v1beta1.PlacementDomain{domain("a", "b"), domain("b", "b")},
			want: want{errors: []string{fmt.Sprintf(at, 1, 0) + "Duplicate value"}}},
	} {
		t.Run(name, func(t *testing.T) { test.check(t, ValidateDeployment(placed(3, test.domains...), known)) })
	}
}

// Rule: manager-webhook-refuses.
func TestTemplateWithDomainIsRefused(t *testing.T) {
	d, set := deploymentNamed("web"), setNamed("web")
	for _, labels := range []map[string]string{d.Spec.Template.ObjectMeta.Labels, set.Spec.Template.ObjectMeta.Labels} {
		labels[v1beta1.LabelPlacementDomain] = "a"
	}
	refused := want{errors: []string{"spec.template.metadata.labels[machinist.dev/placement-domain]: Forbidden"}}
	refused.check(t, ValidateDeployment(d, Environment{}))
	refused.check(t, ValidateSet(set, Environment{}))
}

// Rule: update-refused-for-new-errors.
func TestUpdateOfFleetBeyondItsBounds(t *testing.T) {
	core := NewCoreWebhook(scheme(), reader{}, reader{err: errors.New("away")})
	atMost := func(largest, replicas int32) *v1beta1.MachineDeployment {
		return placed(replicas, bounded(domain("a", "x"), 0, &largest))
	}
	relabeled := atMost(5, 7)
	relabeled.Spec.Template.Spec.Node.Labels = map[string]string{"pool": "web"}
	for name, test := range map[string]struct {
		now, before *v1beta1.MachineDeployment
		refused     bool
	}{
		"another field":                  {relabeled, atMost(5, 7), false},
		"an error as before":             {atMost(5, 7), atMost(5, 7), false},
		"more replicas":                  {atMost(5, 8), atMost(5, 7), true},
		"a smaller bound":                {atMost(4, 5), atMost(5, 5), true},
		"a smaller bound, less replicas": {atMost(4, 4), atMost(5, 7), false},
	} {
		answer := core.Handle(t.Context(), request(t, "MachineDeployment", test.now, test.before))
		if answer.Allowed == test.refused {
			t.Errorf("%s: allowed=%v: %v", name, answer.Allowed, answer.Result)
		}
	}
}

// slowReader answers each list request after liveTimeout.
type slowReader struct {
	countingClient
	clock *testclock.FakePassiveClock
}

func (s slowReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	s.lists.Add(1)
	s.clock.SetTime(s.clock.Now().Add(liveTimeout))
	return errors.New("away")
}

// A slow API server must not delay a request by liveTimeout for each class.
//
// Rule: webhook-requests-limited.
func TestPlacementOfManyUnknownClassesReadsBriefly(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Now())
	live := slowReader{countingClient{lists: &atomic.Int64{}}, clock}
	core := NewCoreWebhook(scheme(), reader{}, live)
	core.clock = clock
	var classes []string
	for i := range 16 {
		classes = append(classes, strings.Repeat("x", i+1))
	}
	answer := core.Handle(t.Context(), request(t, "MachineDeployment", placed(1, domain("a", classes...)), nil))
	if n := live.lists.Load(); !answer.Allowed || len(answer.Warnings) > 0 || n != 1 {
		t.Errorf("allowed=%v, warnings %q, %d reads; want one read, because the API server is slow", answer.Allowed,
			answer.Warnings, n)
	}
}
