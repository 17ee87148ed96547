package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
)

const (
	noticePeriod = 15 * time.Second
	// noticeHorizon is how far in the future an announced interruption may be. An interruption at a later time is
	// treated as advice.
	noticeHorizon = 15 * time.Minute
)

type notices struct{ *Reconciler }

// NoticesWiring returns the wiring of the controller that polls the provider for announced interruptions. The
// controller is triggered once when it starts, and then requeues itself. The controller is only needed if
// Options.Interrupter is set.
func (r *Reconciler) NoticesWiring() wiring.Controller {
	start := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "interruptions"}})
		return nil
	})
	return wiring.Controller{Name: "interruptions", Reconciler: notices{r}, Concurrency: 1,
		Sources: []source.Source{start}}
}

// noticeScope is a group of Machines whose interruptions a single call to the provider returns.
type noticeScope struct {
	class    provider.Class
	machines []*v1beta1.Machine
}

// Reconcile polls each scope once.
func (n notices) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	scopes, err := n.scopes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(scopes)) {
		s := scopes[name]
		found, err := n.Interrupter.Interruptions(ctx, provider.InterruptionsRequest{Class: s.class, ClusterID: n.ClusterID})
		if err != nil {
			// Until the next successful call, earlier announcements stay valid.
			logf.FromContext(ctx).Info("Cannot list the announced interruptions", "machine", s.machines[0].Name, "cause",
				messageOf(err))
			continue
		}
		horizon, announced := n.Clock.Now().Add(noticeHorizon), map[string]provider.Interruption{}
		for _, i := range found {
			if !i.ReclaimTime.After(horizon) {
				announced[i.ProviderID] = i
			}
		}
		for _, m := range s.machines {
			i, ok := announced[m.Spec.ProviderID]
			n.learn(m, i, ok)
		}
	}
	return reconcile.Result{RequeueAfter: noticePeriod}, nil
}

// scopes groups the Machines that have an instance. The Machines of a group have the same Secret with credentials, and
// the driver returns the same scope for them. Each class is resolved only once.
func (n notices) scopes(ctx context.Context) (map[string]*noticeScope, error) {
	machines, err := index.ListShared[v1beta1.Machine](ctx, n.Client, &v1beta1.MachineList{},
		client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	scopes, byClass := map[string]*noticeScope{}, map[string]*noticeScope{}
	for _, m := range machines {
		if m.Spec.ProviderID == "" || m.Status.FailureReason != "" || machinestate.Provider(m) != n.Cloud.Name() {
			continue
		}
		class := classNameOf(m)
		s, known := byClass[class]
		if !known {
			inputs, err := n.Classes.ResolveForDeletion(ctx, m)
			if err == nil && len(inputs.ProviderSpec) > 0 {
				name := m.Namespace + "/" + n.scopeNameOf(inputs)
				if s = scopes[name]; s == nil {
					s = &noticeScope{class: inputs.Class()}
					scopes[name] = s
				}
			}
			byClass[class] = s // Nil if the class cannot be resolved. The Machines report why.
		}
		if s != nil {
			s.machines = append(s.machines, m)
		}
	}
	return scopes, nil
}

func classNameOf(m *v1beta1.Machine) string {
	if m.Spec.ClassRef != nil {
		return "class/" + m.Namespace + "/" + m.Spec.ClassRef.Name
	}
	credentials, spec := "", resolve.Inputs{}
	if m.Spec.CredentialsRef != nil {
		credentials = m.Spec.CredentialsRef.Name
	}
	if m.Spec.ProviderSpec != nil {
		spec.ProviderSpec = m.Spec.ProviderSpec.Raw
	}
	return "machine/" + m.Namespace + "/" + credentials + "/" + spec.SpecHash()
}

// scopeNameOf returns a string that identifies a scope. Two classes share a scope if they have the same Secret, and the
// driver returns the same scope name. If the driver does not name scopes, the two classes must have the same spec.
func (n notices) scopeNameOf(inputs resolve.Inputs) string {
	name := ""
	if inputs.CredentialsRef != nil {
		name = inputs.CredentialsRef.Name
	}
	if scoper, ok := n.Cloud.(provider.Scoper); ok {
		if scope, err := scoper.ListScope(inputs.Class()); err == nil && scope != "" {
			return name + "/scope/" + scope
		}
	}
	return name + "/spec/" + inputs.SpecHash()
}

// learn stores whether the provider announces an interruption of a Machine's instance. If the answer has changed, learn
// enqueues the Machine.
func (n notices) learn(m *v1beta1.Machine, i provider.Interruption, announced bool) {
	before := n.states.get(m).instance.polled
	now := polledInterruption{providerID: m.Spec.ProviderID}
	if announced {
		now.reclaimTime, now.reason = i.ReclaimTime, v1beta1.ReasonTerminationNotice
		if i.Reason == provider.Preemption {
			now.reason = v1beta1.ReasonPreemptionNotice
		}
	} else if before.reason == "" && !machinestate.IsInterrupted(m) {
		return
	}
	if before.providerID == now.providerID && before.reason == now.reason && before.reclaimTime.Equal(now.reclaimTime) {
		return
	}
	n.states.update(m, func(known *machineState) { known.instance.polled = now })
	n.trigger.Enqueue(client.ObjectKeyFromObject(m))
}
