package machinedeployment

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
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

// Rule: placement-reported.
func TestBalancedNamesRejectedClasses(t *testing.T) {
	d, set := deployment("a"), setOf("a", 3, noon)
	d.Spec.Placement = &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{{Name: "zone-a",
		Options: []v1beta1.PlacementOption{{ClassName: "a"}, {ClassName: "b"}}}}}
	d.Spec.Template.Spec.ClassRef, set.Spec.Template.Spec.ClassRef = nil, nil
	set.Spec.Placement = d.Spec.Placement
	var machines []*v1beta1.Machine
	for i := range 3 {
		m := machineOfClass(fmt.Sprint("m", i), "a")
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionLaunched,
			Status: metav1.ConditionFalse, Reason: v1beta1.ReasonInvalidConfiguration})
		machines = append(machines, m)
	}
	for name, test := range map[string]struct {
		machines []*v1beta1.Machine
		capacity map[string]placement.Capacity
		want     string
	}{
		"by its status": {nil, map[string]placement.Capacity{"a": {Rejected: v1beta1.ReasonInvalidProviderSpec}},
			"from class a in zone-a (InvalidProviderSpec)."},
		"by its machines": {machines, nil, "from class a in zone-a (InvalidConfiguration). The next machine gets class b in zone-a."},
	} {
		t.Run(name, func(t *testing.T) {
			n := int32(len(test.machines))
			d.Spec.Replicas, set.Spec.Replicas = &n, &n
			v := viewed(t, d, []*v1beta1.MachineSet{set}, map[types.UID][]*v1beta1.Machine{set.UID: test.machines})
			v.capacity = test.capacity
			status := v1beta1.MachineDeploymentStatus{}
			conditions{&status, 1, noon, ""}.setPlacement(d, v)
			c := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionBalanced)
			if c == nil || !strings.Contains(c.Message, "No instance can be created "+test.want) {
				t.Errorf("Balanced is %+v, want %q in its message", c, test.want)
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
