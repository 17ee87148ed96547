package machinedeployment

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

func machineOfClass(name, class string) *v1beta1.Machine {
	return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}}
}

// A rollout must not wait for machines that have no place.
//
// Rule: placement-shares.
func TestPlaceableReplicas(t *testing.T) {
	domain := func(name string, weight int32, maximum *int32) v1beta1.PlacementDomain {
		return v1beta1.PlacementDomain{Name: name, Weight: &weight, MaxReplicas: maximum,
			Options: []v1beta1.PlacementOption{{ClassName: name}}}
	}
	two := []*v1beta1.Machine{machineOfClass("m0", "b"), machineOfClass("m1", "b"), machineOfClass("m2", "x")}
	for name, test := range map[string]struct {
		domains []v1beta1.PlacementDomain
		current []*v1beta1.Machine
		want    int32
	}{
		"without placement":            {nil, nil, 5},
		"without bounds":               {[]v1beta1.PlacementDomain{domain("a", 1, ptr.To[int32](1)), domain("b", 1, nil)}, nil, 5},
		"with bounds above replicas":   {[]v1beta1.PlacementDomain{domain("a", 1, ptr.To[int32](9))}, nil, 5},
		"with bounds below replicas":   {[]v1beta1.PlacementDomain{domain("a", 1, ptr.To[int32](1)), domain("b", 1, ptr.To[int32](2))}, nil, 3},
		"machines without weight stay": {[]v1beta1.PlacementDomain{domain("a", 1, ptr.To[int32](1)), domain("b", 0, nil)}, two, 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1beta1.MachineDeployment{Spec: v1beta1.MachineDeploymentSpec{Replicas: ptr.To[int32](5)}}
			if test.domains != nil {
				d.Spec.Placement = &v1beta1.Placement{Domains: test.domains}
			}
			if got := placeable(d, test.current); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// Rule: placement-classes-are-revision.
func TestCountKept(t *testing.T) {
	placed := func(classes ...string) *v1beta1.Placement {
		p := &v1beta1.Placement{}
		for _, class := range classes {
			p.Domains = append(p.Domains, v1beta1.PlacementDomain{Name: "in-" + class,
				Options: []v1beta1.PlacementOption{{ClassName: class}}})
		}
		return p
	}
	spec := func(class, version string) v1beta1.MachineTemplateSpec {
		t := v1beta1.MachineTemplateSpec{Spec: v1beta1.MachineSpec{Version: version}}
		if class != "" {
			t.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
		}
		return t
	}
	failed := machineOfClass("failed", "a")
	failed.Status.Phase, failed.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureCreateError
	leaving := machineOfClass("leaving", "a")
	leaving.DeletionTimestamp = &metav1.Time{}
	*leaving.DeletionTimestamp = metav1.Now()
	machines := []*v1beta1.Machine{machineOfClass("m0", "a"), machineOfClass("m1", "a"), machineOfClass("m2", "b"), failed,
		leaving}
	for i, test := range []struct {
		wanted, old       *v1beta1.Placement
		wantedOf, oldSpec v1beta1.MachineTemplateSpec
		want              int32
	}{
		{placed("a", "c"), placed("a", "b"), spec("", "v1"), spec("", "v1"), 2},
		{placed("b", "a"), placed("a", "b"), spec("", "v1"), spec("", "v1"), 0}, // the same revision
		{placed("a", "c"), placed("a", "b"), spec("", "v2"), spec("", "v1"), 0}, // another version
		{placed("a", "c"), nil, spec("", "v1"), spec("a", "v1"), 2},
		{nil, placed("a", "b"), spec("b", "v1"), spec("", "v1"), 1},
		{nil, nil, spec("b", "v1"), spec("a", "v1"), 0}, // without a placement, the rollout replaces all machines
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d := &v1beta1.MachineDeployment{Spec: v1beta1.MachineDeploymentSpec{Placement: test.wanted, Template: test.wantedOf}}
			set := &v1beta1.MachineSet{Spec: v1beta1.MachineSetSpec{Placement: test.old, Template: test.oldSpec}}
			if got := countKept(d, set, machines, metav1.Time{}.Time); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
