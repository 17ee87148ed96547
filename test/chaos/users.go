package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
)

const namespace = "default"

const maxTemporary = 2

type users struct {
	experiment *experiment
	random     *rand.Rand
	before     map[string]v1beta1.MachineSpec
	created    int
}

// pools returns the permanent deployments. The simulated users neither scale the deployment "calm" nor change its
// bounds, because the judge checks fewer invariants while a deployment changes.
func pools() []*v1beta1.MachineDeployment {
	rolling := func(surge, unavailable int32) v1beta1.DeploymentStrategy {
		return v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate, RollingUpdate: &v1beta1.RollingUpdate{
			MaxSurge: new(intstr.FromInt32(surge)), MaxUnavailable: new(intstr.FromInt32(unavailable)),
		}}
	}
	return []*v1beta1.MachineDeployment{
		pool("calm", 10, rolling(3, 1)),
		pool("busy", 8, rolling(2, 0)),
		pool("lean", 6, rolling(0, 2)),
		pool("fresh", 4, v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRecreate}),
	}
}

func pool(name string, n int32, strategy v1beta1.DeploymentStrategy) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Replicas, d.Spec.Strategy = &n, strategy
	d.Spec.Selector.MatchLabels = map[string]string{"pool": name}
	d.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": name}
	d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: examples.SmallClass}
	d.Spec.Template.Spec.Version = "v1.36.1"
	return d
}

func (e *experiment) createFleet(ctx context.Context) error {
	e.users = &users{experiment: e, random: rand.New(rand.NewPCG(e.options.seed, 2)),
		before: map[string]v1beta1.MachineSpec{}}
	objects, err := examples.Fleet()
	if err != nil {
		return err
	}
	secret := fmt.Sprintf("canary-%016x", rand.Uint64())
	e.watcher.addSecret("the token of the cloud", e.CloudToken())
	e.watcher.addSecret("user data", secret)
	for _, o := range objects {
		if _, ok := o.(*v1beta1.MachineDeployment); ok {
			continue
		}
		o.SetNamespace(namespace)
		if s, ok := o.(*corev1.Secret); ok {
			switch s.Name {
			case examples.CredentialsSecret:
				s.StringData = map[string]string{"token": e.CloudToken()}
			case examples.UserDataSecret:
				s.StringData[v1beta1.DefaultUserDataKey] += "\n# " + secret + "\n"
			}
		}
		if err := e.control.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	for _, d := range pools() {
		if err := e.control.Create(ctx, d); err != nil {
			return fmt.Errorf("create deployment %s: %w", d.Name, err)
		}
	}
	if problems := e.await(ctx, e.fleetProblems); len(problems) > 0 {
		return fmt.Errorf("the fleet does not reach the requested state without disturbances: %s", problems)
	}
	e.logf("the fleet runs")
	return nil
}

type action struct {
	weight int
	name   string
	do     func(*users, context.Context) (string, error)
}

func actions() []action {
	return []action{
		{5, "scale", (*users).scale},
		{7, "roll out", (*users).rollOut},
		{2, "roll back", (*users).rollBack},
		{2, "pause or resume", (*users).pause},
		{4, "delete machines", (*users).deleteMachines},
		{3, "create a deployment", (*users).createDeployment},
		{3, "delete a deployment", (*users).deleteDeployment},
	}
}

func (u *users) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(between(u.random, 500*time.Millisecond, 4*time.Second)):
		}
		chosen := actions()[draw(u.random, actions(), func(a action) int { return a.weight })]
		request, cancel := context.WithTimeout(ctx, 10*time.Second)
		text, err := chosen.do(u, request)
		cancel()
		switch {
		case errors.Is(err, errNothing) || ctx.Err() != nil:
		case err != nil:
			u.experiment.count("user actions that failed because the API server was unreachable")
			u.experiment.logf("user failed to %s: %v", chosen.name, err)
		default:
			u.experiment.count("user: " + chosen.name)
			u.experiment.logf("user: %s", text)
		}
	}
}

var errNothing = errors.New("nothing to do")

func (u *users) change(ctx context.Context, name string, change func(*v1beta1.MachineDeployment)) error {
	d := &v1beta1.MachineDeployment{}
	if err := u.experiment.control.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
		return err
	}
	before := d.DeepCopy()
	change(d)
	return u.experiment.control.Patch(ctx, d, client.MergeFrom(before))
}

func (u *users) scale(ctx context.Context) (string, error) {
	name := pick(u.random, []string{"busy", "busy", "lean", "fresh"})
	n := int32(u.random.IntN(15))
	if name == "fresh" {
		n = int32(u.random.IntN(7))
	}
	return fmt.Sprintf("scales %s to %d", name, n), u.change(ctx, name, func(d *v1beta1.MachineDeployment) {
		d.Spec.Replicas = &n
	})
}

func (u *users) rollOut(ctx context.Context) (string, error) {
	name := pick(u.random, []string{"calm", "calm", "busy", "lean", "fresh"})
	class := pick(u.random, []string{examples.SmallClass, examples.LargeClass})
	version := fmt.Sprintf("v1.36.%d", u.random.IntN(4))
	return fmt.Sprintf("rolls out %s: class %s, version %s", name, class, version),
		u.change(ctx, name, func(d *v1beta1.MachineDeployment) {
			u.before[name] = *d.Spec.Template.Spec.DeepCopy()
			d.Spec.Template.Spec.ClassRef.Name, d.Spec.Template.Spec.Version = class, version
		})
}

func (u *users) rollBack(ctx context.Context) (string, error) {
	name := pick(u.random, []string{"calm", "busy", "lean"})
	before, ok := u.before[name]
	if !ok {
		return "", errNothing
	}
	return fmt.Sprintf("rolls back %s: class %s, version %s", name, before.ClassRef.Name, before.Version),
		u.change(ctx, name, func(d *v1beta1.MachineDeployment) {
			u.before[name], d.Spec.Template.Spec = *d.Spec.Template.Spec.DeepCopy(), before
		})
}

func (u *users) pause(ctx context.Context) (text string, err error) {
	name := pick(u.random, []string{"calm", "busy", "lean"})
	err = u.change(ctx, name, func(d *v1beta1.MachineDeployment) {
		d.Spec.Paused = !d.Spec.Paused
		text = fmt.Sprintf("sets %s paused=%t", name, d.Spec.Paused)
	})
	return text, err
}

func (u *users) deleteMachines(ctx context.Context) (string, error) {
	list := &v1beta1.MachineList{}
	if err := u.experiment.control.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	n := min(1+u.random.IntN(3), len(list.Items))
	if n == 0 {
		return "", errNothing
	}
	text := "deletes"
	for range n {
		m := &list.Items[u.random.IntN(len(list.Items))]
		u.experiment.watcher.expectDeletion(string(m.UID))
		text += " " + m.Name
		if err := u.experiment.control.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
			return "", err
		}
	}
	return text, nil
}

func (u *users) temporary(ctx context.Context) ([]v1beta1.MachineDeployment, error) {
	list := &v1beta1.MachineDeploymentList{}
	err := u.experiment.control.List(ctx, list, client.InNamespace(namespace))
	permanent := pools()
	return slices.DeleteFunc(list.Items, func(d v1beta1.MachineDeployment) bool {
		return !d.DeletionTimestamp.IsZero() || slices.ContainsFunc(permanent, func(p *v1beta1.MachineDeployment) bool {
			return p.Name == d.Name
		})
	}), err
}

func (u *users) createDeployment(ctx context.Context) (string, error) {
	existing, err := u.temporary(ctx)
	if err != nil {
		return "", err
	}
	if len(existing) >= maxTemporary {
		return "", errNothing
	}
	u.created++
	d := pool(fmt.Sprintf("temporary-%d", u.created), int32(1+u.random.IntN(4)), pools()[0].Spec.Strategy)
	return fmt.Sprintf("creates %s with %d machines", d.Name, *d.Spec.Replicas), u.experiment.control.Create(ctx, d)
}

func (u *users) deleteDeployment(ctx context.Context) (string, error) {
	existing, err := u.temporary(ctx)
	if err != nil {
		return "", err
	}
	if len(existing) == 0 {
		return "", errNothing
	}
	d := &existing[u.random.IntN(len(existing))]
	propagation := pick(u.random, []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground})
	return fmt.Sprintf("deletes %s, propagation %s", d.Name, propagation),
		client.IgnoreNotFound(u.experiment.control.Delete(ctx, d, client.PropagationPolicy(propagation)))
}
