package integration

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// A set writes as often with a placement as without: one creation and one deletion of each machine, and the same
// changes of its own status.
func TestPlacementNeedsNoMoreWrites(t *testing.T) {
	zones := []string{"a", "b", "c"}
	writes := func(placed bool) (counts []map[string]int) {
		b := newBench(t)
		for _, zone := range zones {
			class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "small-" + zone}}
			class.Spec.Provider = "sim"
			class.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"sim.machinist.dev/v1beta1","kind":"SimMachine"}`)}
			b.must(b.admin.Create(b.ctx, class))
		}
		b.newSet(6, func(s *v1beta1.MachineSet) {
			if !placed {
				return
			}
			s.Spec.Template.Spec.ClassRef, s.Spec.Placement = nil, &v1beta1.Placement{}
			for _, zone := range zones {
				s.Spec.Placement.Domains = append(s.Spec.Placement.Domains, v1beta1.PlacementDomain{Name: zone,
					Options: []v1beta1.PlacementOption{{ClassName: "small-" + zone}}})
			}
		})
		settle := func() {
			b.took()
			total := map[string]int{}
			for range 5 {
				b.clock.SetTime(b.clock.Now().Add(time.Minute))
				b.reconcile()
				for call, n := range b.took() {
					if !strings.HasPrefix(call, "live ") {
						total[call] += n
					}
				}
				b.runAll()
			}
			counts = append(counts, total)
		}
		settle()
		inZone := map[string]int{}
		for _, m := range b.wantLives(6) {
			inZone[m.Labels[v1beta1.LabelPlacementDomain]]++
		}
		if want := map[string]int{"a": 2, "b": 2, "c": 2}; placed && !maps.Equal(inZone, want) {
			t.Errorf("the machines are in the domains %v, want %v", inZone, want)
		}
		b.scale(3)
		settle()
		b.wantLives(3)
		return counts
	}
	without, with := writes(false), writes(true)
	for i, phase := range []string{"creation", "scale-down"} {
		if !maps.Equal(with[i], without[i]) {
			t.Errorf("%s: writes with a placement %v, without %v", phase, with[i], without[i])
		}
	}
	if without[0]["create"] != 6 || without[1]["delete"] != 3 {
		t.Errorf("the writes are not counted: %v", without)
	}
}
