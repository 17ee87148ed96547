//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

// zones are the zones of region sim-1.
var zones = []string{"a", "b", "c"}

// One deployment is spread over three zones. It survives the lack of capacity in two zones, returns to the balance when
// capacity returns, and keeps the machines whose class remains. All instances are counted in the cloud.
func TestPlacementOverZones(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	for _, zone := range zones {
		m.apply(zoneClass("small-"+zone, "small", zone))
	}
	m.apply(zoneClass("medium-a", "medium", "a"))
	m.apply(zoneClass("large-c", "large", "c"))
	m.createFleet(6, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec.ClassRef = nil
			d.Spec.Placement = &v1beta1.Placement{}
			for _, zone := range zones {
				domain := v1beta1.PlacementDomain{Name: "zone-" + zone, Options: []v1beta1.PlacementOption{{ClassName: "small-" + zone}}}
				if zone == "a" {
					domain.Options = append(domain.Options, v1beta1.PlacementOption{ClassName: "medium-a"})
				}
				d.Spec.Placement.Domains = append(d.Spec.Placement.Domains, domain)
			}
		}
	})

	t.Log("spread")
	machines := m.awaitRunning(6)
	m.wantInZones(map[string]int{"a/small": 2, "b/small": 2, "c/small": 2})
	for i := range machines {
		if want := "zone-" + strings.TrimPrefix(machines[i].Spec.ClassRef.Name, "small-"); machines[i].Labels[v1beta1.LabelPlacementDomain] != want {
			t.Errorf("machine %s has the domain %q, want %s", machines[i].Name, machines[i].Labels[v1beta1.LabelPlacementDomain], want)
		}
	}
	m.awaitBalanced(metav1.ConditionTrue, v1beta1.ReasonWithinMaxSkew)

	t.Log("no capacity for small instances in zones a and b")
	m.limit("a", 2)
	m.limit("b", 2)
	m.scale(12)
	m.awaitRunning(12)
	m.wantInZones(map[string]int{"a/small": 2, "a/medium": 3, "b/small": 2, "c/small": 5})
	for _, name := range []string{"small-a", "small-b"} {
		class := &v1beta1.MachineClass{}
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if err := m.control.Get(context.Background(), key, class); err != nil {
			t.Fatal(err)
		}
		if !meta.IsStatusConditionFalse(class.Status.Conditions, v1beta1.ConditionCapacityAvailable) ||
			class.Status.CapacityRetryTime == nil {
			t.Errorf("class %s: got %+v, want a class without capacity", name, class.Status)
		}
	}
	d := m.awaitBalanced(metav1.ConditionFalse, v1beta1.ReasonInsufficientResources)
	for _, row := range d.Status.Placement {
		if exhausted := row.ClassName == "small-a" || row.ClassName == "small-b"; exhausted != (row.ExhaustedSince != nil) {
			t.Errorf("status.placement of %s: %+v", row.ClassName, row)
		}
	}

	t.Log("capacity returns, and rebalancing restores a distribution within maxSkew, with the preferred classes")
	m.limit("a", -1)
	m.limit("b", -1)
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"placement":{"rebalance":"WhenIdle"}}}`)
	m.awaitClasses("balance", map[string]int{"small-a": 4, "small-b": 3, "small-c": 5})
	m.wantInZones(map[string]int{"a/small": 4, "b/small": 3, "c/small": 5})
	m.awaitBalanced(metav1.ConditionTrue, v1beta1.ReasonWithinMaxSkew)

	t.Log("scale-down keeps the balance")
	m.scale(6)
	m.awaitRunning(6)
	m.wantInZones(map[string]int{"a/small": 2, "b/small": 2, "c/small": 2})

	t.Log("another class in zone c, after one that does not exist: the machines of zones a and b are kept")
	kept := m.instanceIDs("small-a", "small-b")
	m.kubectl("patch", "md/workers", "--type=json", "-p",
		`[{"op": "replace", "path": "/spec/placement/domains/2/options", "value": [{"className": "absent-c"}, {"className": "large-c"}]}]`)
	m.awaitClasses("the rollout of a class", map[string]int{"small-a": 2, "small-b": 2, "large-c": 2})
	if now := m.instanceIDs("small-a", "small-b"); !slices.Equal(now, kept) {
		t.Errorf("the machines of the remaining classes have instances %v, want %v", now, kept)
	}
	m.wantNoTwins()

	t.Log("a rollout of all machines keeps the balance")
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"version":"v1.37.0"}}}}`)
	m.await("machines of the new version", func(machines []v1beta1.Machine) bool {
		return len(machines) == 6 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Status.Version != "v1.37.0" || m.Status.Phase != v1beta1.MachineRunning
		})
	})
	m.wantInZones(map[string]int{"a/small": 2, "b/small": 2, "c/large": 2})
	m.wantNoTwins()
	m.scale(0)
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

// Deployments per zone become one deployment. The machines keep their instances.
func TestDeploymentsPerZoneAreMerged(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(0, nil)
	for _, zone := range zones {
		m.apply(zoneClass("small-"+zone, "small", zone))
		m.apply(strings.ReplaceAll(`
apiVersion: machinist.dev/v1beta1
kind: MachineDeployment
metadata: {name: web-ZONE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web-ZONE}}
  template:
    metadata: {labels: {app: web-ZONE}}
    spec: {version: v1.36.3, classRef: {name: small-ZONE}}
`, "ZONE", zone))
	}
	m.awaitRunning(6)
	m.kubectl("delete", "md/workers")
	classes := []string{"small-a", "small-b", "small-c"}
	before := m.instanceIDs(classes...)
	m.command("placement", "merge", "--deployments", "web-a,web-b,web-c", "--name", "web", "--yes")
	d := m.awaitBalanced(metav1.ConditionTrue, v1beta1.ReasonWithinMaxSkew)
	if d.Name != "web" || d.ReplicasOrDefault() != 6 {
		t.Errorf("got the deployment %s of %d machines, want web of 6", d.Name, d.ReplicasOrDefault())
	}
	m.await("one set with all machines", func(machines []v1beta1.Machine) bool {
		sets := map[string]bool{}
		for i := range machines {
			sets[machines[i].Labels[v1beta1.LabelMachineSet]] = true
		}
		return len(machines) == 6 && len(sets) == 1
	})
	if after := m.instanceIDs(classes...); !slices.Equal(before, after) {
		t.Errorf("the machines have instances %v, want %v", after, before)
	}
	if n := len(m.instances()); n != 6 {
		t.Errorf("the cloud created %d instances, want 6", n)
	}
}

func zoneClass(name, instanceType, zone string) string {
	return strings.Replace(classManifest(name, instanceType), "region: sim-1\n", "region: sim-1\n    zone: sim-1"+zone+"\n", 1)
}

// limit limits the number of small instances in a zone. A negative number means no limit.
func (m *machinist) limit(zone string, n int) {
	m.t.Helper()
	capacity := &n
	if n < 0 {
		capacity = nil
	}
	if err := m.cloud.SetCapacity(context.Background(), "sim-1", "sim-1"+zone, "small", capacity); err != nil {
		m.t.Fatalf("limit the capacity of zone %s: %v", zone, err)
	}
}

// wantInZones requires the number of live instances by zone and type.
func (m *machinist) wantInZones(want map[string]int) {
	m.t.Helper()
	have := map[string]int{}
	for _, r := range m.instances() {
		if r.State != simcloud.StateTerminated {
			have[strings.TrimPrefix(r.Zone, "sim-1")+"/"+r.Type]++
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		m.t.Errorf("the cloud has instances %v, want %v", have, want)
	}
}

func (m *machinist) instanceIDs(classes ...string) (ids []string) {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	for i := range list.Items {
		if slices.Contains(classes, list.Items[i].Spec.ClassRef.Name) {
			ids = append(ids, list.Items[i].Spec.ProviderID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (m *machinist) awaitBalanced(status metav1.ConditionStatus, reason string) *v1beta1.MachineDeployment {
	m.t.Helper()
	list := env.Await(m.t, m.control, &v1beta1.MachineDeploymentList{}, "Balanced="+string(status)+"/"+reason,
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			if len(l.Items) != 1 {
				return false, "no deployment"
			}
			c := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionBalanced)
			return c != nil && c.Status == status && c.Reason == reason, fmt.Sprintf("%+v", c)
		}, client.InNamespace(namespace))
	return &list.Items[0]
}
