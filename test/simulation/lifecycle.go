package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// lifecycleScenarios returns scenarios in which one event affects a small fleet. The scenarios are so small that the
// sweep of plans can try every fault at every effect.
func lifecycleScenarios() []Scenario {
	script := func(actions ...Action) func(*rand.Rand) []Action {
		return func(*rand.Rand) []Action { return slices.Clone(actions) }
	}
	one, two := fleet(1, "a"), fleet(2, "a")
	inPlace := ofType(v1beta1.StrategyInPlace)
	pods := []app{{name: "web", kind: ReplicaSet, replicas: 1, grace: 5}}
	class, credentials := &v1beta1.MachineClass{}, &corev1.Secret{}
	class.Name, credentials.Name = "a", "credentials"
	next := &v1beta1.MachineClass{}
	next.Name = "b"
	namespaceExists := createNamespace()
	own := secretOf("own")
	return []Scenario{
		{Name: "ids-come-later", Group: Lifecycle, Controllers: CloudController, Base: one,
			Script: script(scale(3), roll("b"), remove())},
		{Name: "ids-come-later-with-token", Group: Lifecycle, Controllers: CloudController | Approval,
			Base: fleet(1, "with-token"), Script: script(scale(2), scale(0))},
		{Name: "rollback", Group: Lifecycle, Base: two, Script: script(roll("b"), roll("a").onceMade(3))},
		{Name: "roll-after-restart", Group: Lifecycle, Variants: 2, Base: two, Script: func(r *rand.Rand) []Action {
			return []Action{bringUp(Manager, 9), roll("b").after([]time.Duration{0, 5 * time.Second}[r.IntN(2)])}
		}},
		{Name: "in-place", Group: Lifecycle, Base: fleet(2, "a", inPlace, ofFirstVersion),
			Script: script(upgrade("v1.36.4"))},
		{Name: "in-place-withdrawn", Group: Lifecycle, Base: fleet(2, "a", inPlace, ofFirstVersion),
			Script: script(upgrade("v1.36.4"), upgrade(firstVersion).waitFor("an instance has version v1.36.4",
				func(w *World) bool {
					return slices.ContainsFunc(w.cloud.instances, func(in *instance) bool { return in.version == "v1.36.4" })
				}))},
		{Name: "replace", Group: Lifecycle, Base: fleet(1, "a", inPlace), Script: script(roll("b"))},
		{Name: "class-vanishes-at-creation", Group: Lifecycle, Script: vanishScript(class, create(one))},
		{Name: "class-vanishes-in-a-roll", Group: Lifecycle, Base: one, Script: vanishScript(next, roll("b"))},
		{Name: "class-vanishes-at-deletion", Group: Lifecycle, Base: one, Script: vanishScript(class, remove())},
		{Name: "class-applied-again-with-its-fleet", Group: Lifecycle, Base: one, Script: script(vanish(class, false),
			remove(), create(two).waitFor("the deployment is gone", hasNone("MachineDeployment")), applyClassAgain(class.Name))},
		{Name: "secret-vanishes-at-creation", Group: Lifecycle, Script: vanishScript(credentials, create(one))},
		{Name: "secret-vanishes-in-a-roll", Group: Lifecycle, Base: one, Script: vanishScript(credentials, roll("b"))},
		{Name: "secret-vanishes-at-deletion", Group: Lifecycle, Base: one, Script: vanishScript(credentials, remove())},
		{Name: "inline-secret-deleted", Group: Lifecycle, Script: script(createSecret("own"), createInline("m", "own"),
			vanish(own, false).onceProtected("own"), deleteNamed("m").after(30*time.Second))},
		{Name: "namespace-deleted", Group: Lifecycle, Base: one, Script: script(namespaceExists, deleteNamespace())},
		{Name: "namespace-deleted-at-creation", Group: Lifecycle, Script: script(namespaceExists, create(two),
			deleteNamespace().onceMade(1))},
		{Name: "namespace-deleted-in-a-roll", Group: Lifecycle, Base: one,
			Script: script(namespaceExists, roll("b"), deleteNamespace().onceMade(2))},
		{Name: "hooks", Group: Lifecycle, Base: one, Apps: pods, Script: script(setHooks(), deleteMachine(0),
			removeHooks("preDrain", v1beta1.ReasonWaitingForPreDrainHook),
			removeHooks("preTerminate", v1beta1.ReasonWaitingForPreTerminateHook))},
		{Name: "paused-deletion", Group: Lifecycle, Base: one, Apps: pods, Script: script(pauseMachines(), deleteMachine(0),
			unpauseMachines())},
	}
}

func (d Action) onceMade(n int) Action {
	d.Name += fmt.Sprintf(" once machine %d was created", n)
	d.Condition = func(w *World) bool { return len(w.oracle.history) >= n }
	return d
}

func (d Action) onceProtected(secret string) Action {
	d.Condition = func(w *World) bool {
		return slices.ContainsFunc(w.control.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret")),
			func(o client.Object) bool {
				return o.GetName() == secret && slices.Contains(o.GetFinalizers(), v1beta1.InUseFinalizer)
			})
	}
	return d
}

// vanishScript returns a script in which an object is deleted and created again. The deletion happens before or after
// another action, and may ignore finalizers.
func vanishScript(object client.Object, meanwhile Action) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		actions := []Action{meanwhile, vanish(object, r.IntN(2) == 0)}
		if r.IntN(2) == 0 {
			slices.Reverse(actions)
		}
		return append(actions, createAgain(object).after([]time.Duration{0, 0, time.Second, 40 * time.Second}[r.IntN(4)]))
	}
}

func vanish(o client.Object, force bool) Action {
	return Action{Name: fmt.Sprintf("delete %T %s, force: %t", o, o.GetName(), force),
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			return deleteObject(ctx, c, o, force)
		}}
}

func deleteObject(ctx context.Context, c client.Client, o client.Object, force bool) error {
	found := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.GetName()}, found); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := c.Delete(ctx, found); err != nil || !force {
		return client.IgnoreNotFound(err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(found), found); err != nil {
		return client.IgnoreNotFound(err)
	}
	found.SetFinalizers(nil)
	return client.IgnoreNotFound(c.Update(ctx, found))
}

// createAgain returns an action that creates a deleted object again. If the deletion of the old object is in progress,
// the action first completes this deletion.
func createAgain(o client.Object) Action {
	return Action{Name: fmt.Sprintf("create %T %s again", o, o.GetName()),
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			found := o.DeepCopyObject().(client.Object)
			switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.GetName()}, found); {
			case err == nil && found.GetDeletionTimestamp().IsZero():
				return nil
			case err == nil:
				if err := deleteObject(ctx, c, o, true); err != nil {
					return err
				}
			case !apierrors.IsNotFound(err):
				return err
			}
			if _, secret := o.(*corev1.Secret); secret {
				return c.Create(ctx, secretOf(o.GetName()))
			}
			return c.Create(ctx, classOf(o.GetName(), "plain"))
		}}
}

func secretOf(name string) *corev1.Secret {
	data := map[string]map[string][]byte{
		"credentials": {"token": []byte(canary)},
		"own":         {"token": []byte(canary)},
		"plain":       {"userData": []byte("#cloud-config " + canary)},
		"token":       {"userData": []byte("token=<<BOOTSTRAP_TOKEN>>")},
	}[name]
	labels := map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseBoth}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Data: data}
}

func classOf(name, userData string) *v1beta1.MachineClass {
	o := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.Spec.Provider = providerName
	o.Spec.ProviderSpec = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"kind":"Fake","image":%q}`, name)}
	o.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "credentials"}
	o.Spec.UserDataRef = &v1beta1.UserDataRef{Name: userData}
	return o
}

func createSecret(name string) Action {
	return Action{Name: "create secret " + name, Do: func(ctx context.Context, _ *World, c client.Client) error {
		return c.Create(ctx, secretOf(name))
	}}
}

func createInline(name, credentials string) Action {
	return Action{Name: "create machine " + name + " without a class",
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			m.Spec.Provider, m.Spec.ProviderSpec = providerName, classOf("inline", "").Spec.ProviderSpec
			m.Spec.CredentialsRef = &v1beta1.LocalRef{Name: credentials}
			return c.Create(ctx, m)
		}}
}

func createNamespace() Action {
	return Action{Name: "create the namespace", Do: func(ctx context.Context, _ *World, c client.Client) error {
		return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}}
}

func deleteNamespace() Action {
	return Action{Name: "delete the namespace", Do: func(ctx context.Context, _ *World, c client.Client) error {
		return c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}}
}

func (w *World) unsettledNamespaces() (missing []string) {
	for _, o := range w.control.Snapshot(corev1.SchemeGroupVersion.WithKind("Namespace")) {
		if !o.GetDeletionTimestamp().IsZero() {
			missing = append(missing, fmt.Sprintf("namespace %s is being deleted", o.GetName()))
		}
	}
	return missing
}

func setHooks() Action {
	return changeMachines("set hooks", func(m *v1beta1.Machine) {
		hook := func(name string) []v1beta1.LifecycleHook {
			return []v1beta1.LifecycleHook{{Name: name, Owner: "person"}}
		}
		m.Spec.LifecycleHooks = v1beta1.LifecycleHooks{PreDrain: hook("backup.example.com"),
			PreTerminate: hook("billing.example.com")}
	})
}

// removeHooks returns an action that removes the hooks of a machine whose condition says that the deletion waits for
// them.
func removeHooks(which, reason string) Action {
	waits := func(m *v1beta1.Machine) bool {
		c := findCondition(m, v1beta1.ConditionDeleting)
		return c != nil && c.Reason == reason
	}
	d := changeMachines("remove hooks: "+which, func(m *v1beta1.Machine) {
		switch {
		case !waits(m):
		case which == "preDrain":
			m.Spec.LifecycleHooks.PreDrain = nil
		default:
			m.Spec.LifecycleHooks.PreTerminate = nil
		}
	})
	d.Condition = func(w *World) bool { return slices.ContainsFunc(w.machines(), waits) }
	return d
}

func pauseMachines() Action {
	return changeMachines("pause all machines", func(m *v1beta1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.AnnotationPaused, "")
	})
}

func unpauseMachines() Action {
	d := changeMachines("unpause all machines", func(m *v1beta1.Machine) {
		delete(m.Annotations, v1beta1.AnnotationPaused)
	})
	d.MinDelay = time.Minute
	return d
}

func changeMachines(name string, change func(*v1beta1.Machine)) Action {
	return Action{Name: name, Do: func(ctx context.Context, w *World, c client.Client) error {
		for _, m := range w.machines() {
			changed := m.DeepCopy()
			change(changed)
			if err := c.Patch(ctx, changed, client.MergeFrom(m)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	}}
}

func (w *World) machines() (all []*v1beta1.Machine) {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
		all = append(all, o.(*v1beta1.Machine))
	}
	return all
}
