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

// Register adds the two controllers, of classes and of their Secrets, to the manager.
func (r *Reconciler) Register(mgr manager.Manager) error {
	for _, table := range r.Wiring(mgr.GetCache()) {
		if err := table.Add(mgr, nil); err != nil {
			return err
		}
	}
	return nil
}

// Wiring returns the tables of what triggers a class, and what the Secret of one.
//
// The objects of an event are read from a bare cache: waiting for our own writes there would delay all events.
func (r *Reconciler) Wiring(cache client.Reader) []wiring.Controller {
	c := concerned{cache: cache, provider: r.Driver.Name()}
	secretChanged := predicate.ResourceVersionChangedPredicate{}
	return []wiring.Controller{{
		Name: "machineclass", Reconciler: r, Concurrency: r.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineClass{}, Predicate: r.echo.Filter(classChanged())},
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
			{Object: wiring.Secrets(), Keys: handler.EnqueueRequestsFromMapFunc(c.secretOutOfOrder), Predicate: secretChanged},
		},
	}}
}

// concerned finds the objects that an event concerns.
type concerned struct {
	cache    client.Reader
	provider string
}

// classChanged lets through what people change, and the finalizer only when somebody took it away. A status that the
// process before this one wrote, and that a late cache shows only now, is let through as the write of another (Echo).
func classChanged() predicate.Predicate {
	protected := func(o client.Object) bool { return controllerutil.ContainsFinalizer(o, v1beta1.InUseFinalizer) }
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
			protected(e.ObjectOld) && !protected(e.ObjectNew)
	}}
}

// gather is how long the deletions of Machines are gathered: a class with thousands of them is not checked for each.
const gather = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// machineEvents triggers a class when its first Machine comes, and one that is being deleted when a Machine goes or
// begins or ceases to hold it. A Machine whose Node or user data is news for the class triggers it, too. All other
// events of Machines cost a check into the cache at most.
func (c concerned) machineEvents() handler.EventHandler {
	comes := func(ctx context.Context, o client.Object, q queue) {
		class, key := c.classOf(ctx, o)
		if class != nil && (!controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) ||
			!class.DeletionTimestamp.IsZero()) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	goes := func(ctx context.Context, o client.Object, q queue) {
		if class, key := c.classOf(ctx, o); class != nil && !class.DeletionTimestamp.IsZero() {
			q.AddAfter(reconcile.Request{NamespacedName: key}, gather)
		}
	}
	changes := func(ctx context.Context, o client.Object, q queue) {
		if class, key := c.classOf(ctx, o); class != nil && class.DeletionTimestamp.IsZero() && changesCount(class, o) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, observeAfter)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { comes(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if className(e.ObjectOld) != className(e.ObjectNew) {
				comes(ctx, e.ObjectNew, q)
				goes(ctx, e.ObjectOld, q)
				return
			}
			if holderKind(e.ObjectOld) != holderKind(e.ObjectNew) {
				goes(ctx, e.ObjectNew, q)
			}
			if countedOf(e.ObjectOld) != countedOf(e.ObjectNew) {
				changes(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			goes(ctx, e.Object, q)
			changes(ctx, e.Object, q)
		},
	}
}

// holderKind returns what a Machine means for the deletion of its class.
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

// classOf returns the class of a Machine if it exists and is this provider's. It must not be changed.
func (c concerned) classOf(ctx context.Context, machine client.Object) (*v1beta1.MachineClass, types.NamespacedName) {
	key := types.NamespacedName{Namespace: machine.GetNamespace(), Name: className(machine)}
	if key.Name == "" {
		return nil, key
	}
	class := &v1beta1.MachineClass{}
	if err := c.cache.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) != nil {
			logf.FromContext(ctx).Error(err, "Cannot find the class of a Machine", "machine",
				client.ObjectKeyFromObject(machine))
		}
		return nil, key
	}
	if class.Spec.Provider != c.provider {
		return nil, key
	}
	return class, key
}

// classesOfSecret triggers the classes that refer to a Secret.
func (c concerned) classesOfSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, class := range c.referring(ctx, secret) {
		if class.Spec.Provider == c.provider {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&class)})
		}
	}
	return requests
}

// secretOutOfOrder triggers a Secret whose finalizer is not as the classes and Machines in the cache would have it.
// Most Secrets of a cluster are none of ours, and those must not cost a request.
func (c concerned) secretOutOfOrder(ctx context.Context, secret client.Object) []reconcile.Request {
	users, err := usersOf(ctx, c.cache, secret, c.provider)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Cannot find the objects that a Secret concerns")
	}
	if stored := controllerutil.ContainsFinalizer(secret, v1beta1.InUseFinalizer); stored && users.any || !stored &&
		(!users.ours || !resolve.Usable(secret)) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(secret)}}
}

func (c concerned) referring(ctx context.Context, secret client.Object) []v1beta1.MachineClass {
	classes, err := resolve.ClassesOfSecret(ctx, c.cache, secret)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Cannot find the objects that a Secret concerns")
	}
	return classes
}

// secretsOfClass triggers the Secrets that a class refers to, and those that it referred to before.
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

// secretsOfMachine triggers the Secrets that a Machine of the inline form refers to: those that are not held when it
// comes, and those that nobody else refers to when it goes.
func (c concerned) secretsOfMachine() handler.EventHandler {
	enqueue := func(ctx context.Context, q queue, o client.Object, names []string, after time.Duration) {
		for _, name := range names {
			secret := wiring.Secrets()
			key := types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
			if err := c.cache.Get(ctx, key, secret); err != nil {
				continue // It is checked when it comes.
			}
			if len(c.secretOutOfOrder(ctx, secret)) > 0 {
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
			enqueue(ctx, q, e.Object, inlineSecrets(e.Object), gather)
		},
	}
}
