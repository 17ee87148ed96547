package machinedeployment

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: replicas-left-out-are-kept.
func TestCurrentReplicas(t *testing.T) {
	sized := func(class string, revision int, replicas int32, annotations map[string]int) *v1beta1.MachineSet {
		set := setOf(class, revision, noon.Add(time.Duration(revision)*time.Hour))
		set.Spec.Replicas = ptr.To(replicas)
		for key, n := range annotations {
			set.Annotations[key] = strconv.Itoa(n)
		}
		return set
	}
	for name, test := range map[string]struct {
		sets []*v1beta1.MachineSet
		want *int32
	}{
		"no set":      {nil, nil},
		"one set":     {[]*v1beta1.MachineSet{sized("a", 1, 5, nil)}, ptr.To[int32](5)},
		"no replicas": {[]*v1beta1.MachineSet{sized("a", 1, 0, nil)}, ptr.To[int32](0)},
		"a machine is being replaced": {[]*v1beta1.MachineSet{sized("a", 1, 6,
			map[string]int{v1beta1.AnnotationExchangeSurge: 1})}, ptr.To[int32](5)},
		"in a rollout": {[]*v1beta1.MachineSet{sized("a", 1, 4, nil),
			sized("b", 2, 2, map[string]int{v1beta1.AnnotationSizedFor: 5})}, ptr.To[int32](5)},
	} {
		got := currentReplicas(test.sets)
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s: %v, want %v", name, ptr.Deref(got, -1), ptr.Deref(test.want, -1))
		}
	}
}
