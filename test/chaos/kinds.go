package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/link"
)

func (e *experiment) generators() []generator {
	return append(e.cloudGenerators(), []generator{
		{5, func(r *rand.Rand) disturbance { return e.kill(r, pick(r, e.replicas)) }},
		{2, func(r *rand.Rand) disturbance { return e.kill(r, e.replicasOf(pick(r, programs))...) }},
		{3, func(r *rand.Rand) disturbance {
			return e.freeze("frozen for less than the lease duration", pick(r, e.replicas),
				between(r, 300*time.Millisecond, leaseDuration*3/4))
		}},
		{3, func(r *rand.Rand) disturbance {
			return e.freeze("frozen for longer than the lease duration", pick(r, e.replicas),
				between(r, leaseDuration+time.Second, 3*leaseDuration))
		}},
		{3, func(r *rand.Rand) disturbance { return e.stealLease(pick(r, programs)) }},
		{3, func(r *rand.Rand) disturbance { return e.killEtcd(r, "control", e.Control) }},
		{1, func(r *rand.Rand) disturbance { return e.killEtcd(r, "target", e.Target) }},
		{3, func(r *rand.Rand) disturbance { return e.killAPIServer(r, "control", e.Control) }},
		{1, func(r *rand.Rand) disturbance { return e.killAPIServer(r, "target", e.Target) }},
		{4, func(r *rand.Rand) disturbance { return e.cut(r, "control", pick(r, e.replicas)) }},
		{1, func(r *rand.Rand) disturbance { return e.cut(r, "control", e.replicas...) }},
		{2, func(r *rand.Rand) disturbance { return e.cut(r, "target", pick(r, e.replicas)) }},
		{2, func(r *rand.Rand) disturbance { return e.cut(r, "target", e.replicas...) }},
		{2, func(r *rand.Rand) disturbance { return e.cut(r, "cloud", e.replicasOf(stack.Provider)...) }},
	}...)
}

var programs = []string{stack.Manager, stack.Provider}

func pick[T any](random *rand.Rand, items []T) T { return items[random.IntN(len(items))] }

func names(replicas []*replica) (out []string) {
	for _, r := range replicas {
		out = append(out, r.name)
	}
	return out
}

func (e *experiment) kill(random *rand.Rand, replicas ...*replica) disturbance {
	pause := between(random, restartDelay, 6*time.Second)
	return disturbance{
		kind: fmt.Sprintf("kill -9 of %d", len(replicas)), targets: names(replicas),
		text: fmt.Sprintf("kill -9 %s, restart after %s", strings.Join(names(replicas), " "), pause.Round(10*time.Millisecond)),
		do: func(context.Context) error {
			for _, r := range replicas {
				if err := r.kill(pause); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (e *experiment) freeze(kind string, r *replica, duration time.Duration) disturbance {
	return disturbance{
		kind: kind, targets: names([]*replica{r}), duration: duration, text: "SIGSTOP " + r.name,
		do:   func(context.Context) error { return r.signal(syscall.SIGSTOP) },
		undo: func(context.Context) error { return r.signal(syscall.SIGCONT) },
	}
}

// stealLease returns a disturbance that writes another holder into the Lease of a program and never renews the Lease.
func (e *experiment) stealLease(program string) disturbance {
	return disturbance{
		kind: "lease stolen", targets: []string{"lease of " + program}, text: "the lease of " + program + " is stolen",
		do: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			l := &coordinationv1.Lease{}
			if err := e.control.Get(ctx, client.ObjectKey{Namespace: stack.SystemNamespace, Name: program}, l); err != nil {
				return err
			}
			before := l.DeepCopy()
			now := metav1.NowMicro()
			l.Spec.HolderIdentity, l.Spec.AcquireTime, l.Spec.RenewTime = new("thief"), &now, &now
			return e.control.Patch(ctx, l, client.MergeFrom(before))
		},
	}
}

func (e *experiment) killEtcd(random *rand.Rand, name string, cp *controlplane.ControlPlane) disturbance {
	return disturbance{
		kind: "etcd of " + name + " killed", targets: []string{name},
		duration: between(random, 100*time.Millisecond, 5*time.Second),
		text:     "kill -9 etcd of " + name + "; it is down",
		do:       func(context.Context) error { return cp.StopEtcd() },
		undo:     cp.StartEtcd,
	}
}

func (e *experiment) killAPIServer(random *rand.Rand, name string, cp *controlplane.ControlPlane) disturbance {
	return disturbance{
		kind: "API server of " + name + " killed", targets: []string{name},
		duration: between(random, 100*time.Millisecond, 5*time.Second),
		text:     "kill -9 API server of " + name + "; it is down",
		do:       func(context.Context) error { return cp.StopAPIServer() },
		undo:     cp.StartAPIServer,
	}
}

// cut returns a disturbance that interrupts the connections of replicas to one of their servers: control, target or
// cloud.
func (e *experiment) cut(random *rand.Rand, to string, replicas ...*replica) disturbance {
	state, effect := link.CutRefuse, "refuses connections"
	if random.IntN(2) == 0 {
		state, effect = link.CutDrop, "is a black hole"
	}
	var targets []string
	for _, r := range replicas {
		targets = append(targets, r.name+" to "+to)
	}
	set := func(state link.Cut) func(context.Context) error {
		return func(context.Context) error {
			for _, r := range replicas {
				map[string]*link.Link{"control": r.control, "target": r.target, "cloud": r.cloud}[to].SetCut(state)
			}
			return nil
		}
	}
	return disturbance{
		kind: fmt.Sprintf("%s %s for %d", to, effect, len(replicas)), targets: targets,
		duration: between(random, 500*time.Millisecond, 10*time.Second),
		text:     fmt.Sprintf("the %s of %s %s", to, strings.Join(names(replicas), " "), effect),
		do:       set(state), undo: set(link.CutNone),
	}
}
