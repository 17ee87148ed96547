package micro

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
)

type sharedLister struct{ cached }

// ListShared lists objects without copying them.
func (s sharedLister) ListShared(_ context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error) {
	options := (&client.ListOptions{}).ApplyOptions(o)
	if options.Namespace == "" || options.LabelSelector != nil || options.FieldSelector != nil {
		return nil, errors.New("only a namespace can be selected")
	}
	kind, err := apiutil.GVKForObject(list, s.scheme)
	if err != nil {
		return nil, err
	}
	kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	return s.stores[kind].GetIndexer().ByIndex(toolscache.NamespaceIndex, options.Namespace)
}

func ledgerOf(c cached, clock clock.PassiveClock) *disruption.Ledger {
	return disruption.New(disruption.Options{Client: sharedLister{c}, LiveReader: liveClient{c}, Clock: clock,
		CacheVersion: cacheVersion})
}

func budgets() (objects []client.Object) {
	for i, limit := range []string{"10%", "50%", "100"} {
		b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metaOf(fmt.Sprintf("budget-%d", i), fmt.Sprintf("budget-%d", i))}
		b.Spec.MaxDisrupted = intstr.Parse(limit)
		if i == 1 {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool",
				Operator: metav1.LabelSelectorOpExists}}
		}
		if i == 2 {
			b.Spec.Apply = v1beta1.ApplyOutside
			b.Spec.Windows = []v1beta1.DisruptionWindow{{Schedule: "0 22 * * 1-5", TimeZone: "Europe/Berlin",
				Duration: metav1.Duration{Duration: 8 * 3600e9}}}
		}
		objects = append(objects, b)
	}
	return objects
}

func candidatesOf(b testing.TB, c cached, n int) []disruption.Candidate {
	b.Helper()
	candidates := make([]disruption.Candidate, n)
	for i := range candidates {
		m := &v1beta1.Machine{}
		if err := c.Get(b.Context(), types.NamespacedName{Namespace: namespace, Name: machineName(i)}, m); err != nil {
			b.Fatal(err)
		}
		candidates[i] = disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRollout}
	}
	return candidates
}

// BenchmarkLedger measures a decision about 10 machines with three budgets.
func BenchmarkLedger(b *testing.B) {
	const asked = 10
	asker := disruption.Asker{Kind: "MachineSet",
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: deploymentName(0) + "-1"}}
	for _, n := range []int{1000, 10_000} {
		c := cacheOf(b, append(fleet(n, setSize), budgets()...))
		ledger, candidates := ledgerOf(c, testclock.NewFakePassiveClock(now)), candidatesOf(b, c, asked)
		b.Run(fmt.Sprintf("Check/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				may, _, err := ledger.Check(b.Context(), asker, candidates)
				if err != nil || len(may) != asked {
					b.Fatalf("Check: got %d machines, %v, want %d", len(may), err, asked)
				}
			}
		})
		b.Run(fmt.Sprintf("Grant/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				granted, err := ledger.Grant(b.Context(), asker, candidates)
				if err != nil || len(granted) != asked {
					b.Fatalf("Grant: got %d machines, %v, want %d", len(granted), err, asked)
				}
				for _, g := range granted {
					ledger.Settle(g.Machine, nil)
				}
			}
		})
	}
}

func kindsWithLedger(ledger func(cached, clock.PassiveClock) *disruption.Ledger) []kind {
	first := types.NamespacedName{Namespace: namespace, Name: deploymentName(0)}
	return []kind{
		{"set", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machineset.New(machineset.Options{Client: c, LiveReader: liveClient{c}, Recorder: silent{}, Clock: clock,
				MachineCacheVersion: cacheVersion, Ledger: ledger(c, clock)})
		}, types.NamespacedName{Namespace: namespace, Name: deploymentName(0) + "-1"}},
		{"deployment", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machinedeployment.New(machinedeployment.Options{Client: c, LiveReader: liveClient{c},
				Recorder: silent{}, Clock: clock,
				MachineCacheVersion: cacheVersion, Ledger: ledger(c, clock)})
		}, first},
	}
}
