package machineclass

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/wiring"
)

// Register adds the controllers of classes and of their Secrets to the manager.
func (r *Reconciler) Register(mgr manager.Manager) error {
	for _, table := range r.Wiring(mgr.GetCache()) {
		if err := table.Add(mgr, nil); err != nil {
			return err
		}
	}
	return nil
}

// Wiring returns the controllers of classes and Secrets, with the watches that trigger them.
//
// Event handlers read from the given cache. Event handlers do not wait until the cache contains this process's own
// writes, because waiting would delay all events.
func (r *Reconciler) Wiring(cache client.Reader) []wiring.Controller {
	c := mapper{cache: cache, provider: r.Driver.Name()}
	secretChanged := predicate.ResourceVersionChangedPredicate{}
	return []wiring.Controller{{
		Name: "machineclass", Reconciler: r, Concurrency: r.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineClass{}, Predicate: r.writes.Filter(classChanged())},
		Watches: []wiring.Watch{
			{Object: &v1beta1.Machine{}, Keys: c.machineEvents()},
			{Object: wiring.Secrets(), Keys: handler.EnqueueRequestsFromMapFunc(c.classesOfSecret), Predicate: secretChanged},
		},
		Sources: []source.Source{r.trigger.Source()},
	}, {
		Name: "machineclass-secrets", Reconciler: &secretKeeper{r.Options}, Concurrency: r.Concurrency,
		Watches: []wiring.Watch{
			{Object: &v1beta1.MachineClass{}, Keys: secretsOfClass()},
			{Object: &v1beta1.Machine{}, Keys: c.secretsOfMachine()},
			{Object: wiring.Secrets(), Keys: handler.EnqueueRequestsFromMapFunc(c.wrongFinalizer), Predicate: secretChanged},
		},
	}}
}

type mapper struct {
	cache    client.Reader
	provider string
}

// classChanged accepts changes by users and the removal of the finalizer. A status write of the previous process that
// arrives late counts as a change by another client (see wiring.OwnWrites).
func classChanged() predicate.Predicate {
	protected := func(o client.Object) bool { return controllerutil.ContainsFinalizer(o, v1beta1.InUseFinalizer) }
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
			protected(e.ObjectOld) && !protected(e.ObjectNew)
	}}
}

// gatherDelay is how long deletions of Machines are collected before their class is checked. Otherwise a class with
// thousands of Machines would be checked after each deletion.
const gatherDelay = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// machineEvents triggers a class in these cases:
//
//   - The first Machine of the class is created.
//   - The class is being deleted, and one of its Machines is deleted.
//   - The class is being deleted, and a change of a Machine affects whether the deletion must wait for the Machine.
//   - The Node or the user data of a Machine changes the conditions of the class.
//
// Other events cost at most one read from the cache.
func (c mapper) machineEvents() handler.EventHandler {
	created := func(ctx context.Context, o client.Object, q queue) {
		class, key := c.classOf(ctx, o)
		if class != nil && (!controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) ||
			!class.DeletionTimestamp.IsZero()) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	deleted := func(ctx context.Context, o client.Object, q queue) {
		if class, key := c.classOf(ctx, o); class != nil && !class.DeletionTimestamp.IsZero() {
			q.AddAfter(reconcile.Request{NamespacedName: key}, gatherDelay)
		}
	}
	changed := func(ctx context.Context, o client.Object, q queue) {
		if class, key := c.classOf(ctx, o); class != nil && class.DeletionTimestamp.IsZero() && changesCount(class, o) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, observeAfter)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { created(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if className(e.ObjectOld) != className(e.ObjectNew) {
				created(ctx, e.ObjectNew, q)
				deleted(ctx, e.ObjectOld, q)
				return
			}
			if holderKind(e.ObjectOld) != holderKind(e.ObjectNew) {
				deleted(ctx, e.ObjectNew, q)
			}
			if countedOf(e.ObjectOld) != countedOf(e.ObjectNew) {
				changed(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			deleted(ctx, e.Object, q)
			changed(ctx, e.Object, q)
		},
	}
}

func holderKind(o client.Object) (h holders) {
	if m, ok := o.(*v1beta1.Machine); ok {
		h.count(m)
	}
	return h
}

func className(o client.Object) string {
	if m, ok := o.(*v1beta1.Machine); ok && m.Spec.ClassRef != nil {
		return m.Spec.ClassRef.Name
	}
	return ""
}

// classOf returns the class of a Machine, or nil if it is missing or belongs to another provider. The caller must not
// change it.
func (c mapper) classOf(ctx context.Context, machine client.Object) (*v1beta1.MachineClass, types.NamespacedName) {
	key := types.NamespacedName{Namespace: machine.GetNamespace(), Name: className(machine)}
	if key.Name == "" {
		return nil, key
	}
	class := &v1beta1.MachineClass{}
	if err := c.cache.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) != nil {
			logf.FromContext(ctx).Error(err, "Failed to read the class of a Machine", "machine",
				client.ObjectKeyFromObject(machine))
		}
		return nil, key
	}
	if class.Spec.Provider != c.provider {
		return nil, key
	}
	return class, key
}

func (c mapper) classesOfSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, class := range c.referring(ctx, secret) {
		if class.Spec.Provider == c.provider {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&class)})
		}
	}
	return requests
}

// wrongFinalizer returns a request for a Secret that has users but not the finalizer, or the finalizer but no users.
// All other Secrets of the cluster must not trigger anything.
func (c mapper) wrongFinalizer(ctx context.Context, secret client.Object) []reconcile.Request {
	users, err := usersOf(ctx, c.cache, secret, c.provider)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to find the users of a Secret", "secret", client.ObjectKeyFromObject(secret))
	}
	if stored := controllerutil.ContainsFinalizer(secret, v1beta1.InUseFinalizer); stored && users.any || !stored &&
		(!users.own || !resolve.Usable(secret)) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(secret)}}
}

func (c mapper) referring(ctx context.Context, secret client.Object) []v1beta1.MachineClass {
	classes, err := resolve.ClassesOfSecret(ctx, c.cache, secret)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to find the classes of a Secret", "secret", client.ObjectKeyFromObject(secret))
	}
	return classes
}

func secretsOfClass() handler.EventHandler {
	enqueue := func(q queue, o client.Object, names []string) {
		for _, name := range names {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	namesOf := func(o client.Object) []string {
		class, ok := o.(*v1beta1.MachineClass)
		if !ok {
			return nil
		}
		return resolve.SecretNames(class)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object, namesOf(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if before, after := namesOf(e.ObjectOld), namesOf(e.ObjectNew); !slices.Equal(before, after) {
				enqueue(q, e.ObjectNew, append(before, after...))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object, namesOf(e.Object)) },
	}
}

// secretsOfMachine triggers the Secrets of a Machine with an inline specification. When the Machine is created, the
// Secrets without the finalizer are reconciled. When the Machine is deleted, the Secrets that no other object uses are
// reconciled.
func (c mapper) secretsOfMachine() handler.EventHandler {
	enqueue := func(ctx context.Context, q queue, o client.Object, names []string, after time.Duration) {
		for _, name := range names {
			secret := wiring.Secrets()
			key := types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
			if err := c.cache.Get(ctx, key, secret); err != nil {
				continue // The Secret is checked when it is created.
			}
			if len(c.wrongFinalizer(ctx, secret)) > 0 {
				q.AddAfter(reconcile.Request{NamespacedName: key}, after)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			enqueue(ctx, q, e.Object, inlineSecrets(e.Object), 0)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if before, after := inlineSecrets(e.ObjectOld), inlineSecrets(e.ObjectNew); !slices.Equal(before, after) {
				enqueue(ctx, q, e.ObjectNew, append(before, after...), 0)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			enqueue(ctx, q, e.Object, inlineSecrets(e.Object), gatherDelay)
		},
	}
}
