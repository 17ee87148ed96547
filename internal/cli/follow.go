package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// firstRetry and longestRetry bound the pauses between attempts to reach an API server that went away.
	firstRetry, longestRetry = 200 * time.Millisecond, 5 * time.Second
	// shortWatch is how long a watch lasts that is worth no other without a pause.
	shortWatch = time.Second
	// rejectionPatience is how long a server that has come back may refuse what it allowed before: it answers before it
	// has read its own rules.
	rejectionPatience = 30 * time.Second
)

// followed is what is said beside an object that is followed.
type followed struct {
	// unwatchable says what to do without the right to watch.
	unwatchable string
	// lost is called once for each time that the API server is lost.
	lost func(error)
}

// follow calls seen with the object and with each later version of it, until that says done, returns an error, or
// ctx ends. If it says when to check again it is called then at the latest. A watch that ends is begun again, and an
// API server that is unreachable is waited for.
func follow[T client.Object](ctx context.Context, c *Cluster, o T, beside followed,
	seen func(T) (done bool, again time.Duration, err error)) error {
	kind, list, err := kindAndList(c, o)
	if err != nil {
		return err
	}
	first := o
	f := follower[T]{Cluster: c, followed: beside, kind: kind, list: list, pause: firstRetry}
	for {
		done, again, err := seen(o)
		if done || err != nil {
			f.stop()
			return err
		}
		f.again = nil
		if again > 0 {
			f.again = time.After(again)
		}
		next, err := f.next(ctx, o)
		if err != nil {
			f.stop()
			return err
		}
		if next.GetUID() != first.GetUID() {
			f.stop()
			return fmt.Errorf("%s %q was deleted and made again meanwhile", kind, o.GetName())
		}
		o = next
	}
}

// kindAndList returns an object's kind as it is in messages, and an empty list of that kind.
func kindAndList(c *Cluster, o client.Object) (string, client.ObjectList, error) {
	kind, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return "", nil, err
	}
	list, err := c.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return "", nil, err
	}
	return strings.ToLower(kind.Kind), list.(client.ObjectList), nil
}

// read reads an object again. What is read goes into a new one: decoding into one that has something would mix the two.
func read[T client.Object](ctx context.Context, c *Cluster, o T) (T, error) {
	var none T
	kind, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return none, err
	}
	empty, err := c.Scheme().New(kind)
	if err != nil {
		return none, err
	}
	fresh := empty.(T)
	return fresh, c.Get(ctx, client.ObjectKeyFromObject(o), fresh)
}

// follower is a watch that is begun again when it ends.
type follower[T client.Object] struct {
	*Cluster
	followed
	kind   string
	list   client.ObjectList
	events watch.Interface
	// again is when to check the same version again, nil if never.
	again <-chan time.Time
	// watched says that there was a watch, started when the last one began.
	watched bool
	started time.Time
	// since is when the API server was lost, zero if it is there; pause is the next one.
	since time.Time
	pause time.Duration
}

func (f *follower[T]) stop() {
	if f.events != nil {
		f.events.Stop()
		f.events = nil
	}
}

// next returns the next version of the object.
func (f *follower[T]) next(ctx context.Context, o T) (T, error) {
	var none T
	for {
		if f.events == nil {
			fresh, changed, err := f.resume(ctx, o)
			if err != nil || changed {
				return fresh, err
			}
		}
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-f.again:
			return o, nil
		case event, open := <-f.events.ResultChan():
			got, ok := event.Object.(T)
			switch {
			case !open, event.Type == watch.Error, !ok && event.Type != watch.Bookmark:
				f.stop()
			case event.Type == watch.Deleted:
				return none, f.deleted(o)
			case event.Type == watch.Added, event.Type == watch.Modified:
				f.pause = firstRetry
				return got, nil
			}
		}
	}
}

func (f *follower[T]) deleted(o T) error {
	return fmt.Errorf("%s %q in namespace %q was deleted meanwhile", f.kind, o.GetName(), o.GetNamespace())
}

// resume begins the watch, from the version that is known if that is the first one. After that it reads what is there
// now, and returns it if it has changed.
func (f *follower[T]) resume(ctx context.Context, o T) (fresh T, changed bool, err error) {
	var none T
	if f.watched && time.Since(f.started) < shortWatch {
		if err := f.rest(ctx); err != nil {
			return none, false, err
		}
	}
	for {
		from := o
		if f.watched || !f.since.IsZero() {
			fresh, err := read(ctx, f.Cluster, o)
			switch {
			case apierrors.IsNotFound(err) && !isUnknownResource(err):
				return none, false, f.deleted(o)
			case err != nil:
				if err := f.wait(ctx, err); err != nil {
					return none, false, err
				}
				continue
			}
			from = fresh
		}
		events, err := f.Watch(ctx, f.list, &client.ListOptions{
			Namespace:     o.GetNamespace(),
			FieldSelector: fields.OneTermEqualSelector("metadata.name", o.GetName()),
			Raw:           &metav1.ListOptions{ResourceVersion: from.GetResourceVersion()},
		})
		switch {
		case apierrors.IsForbidden(err) && !f.watched && f.since.IsZero():
			return none, false, fmt.Errorf("to wait the verb watch is needed; %s: %w", f.unwatchable, f.Explain(err))
		case err != nil:
			if err := f.wait(ctx, err); err != nil {
				return none, false, err
			}
			continue
		}
		f.events, f.watched, f.started, f.since = events, true, time.Now(), time.Time{}
		return from, from.GetResourceVersion() != o.GetResourceVersion(), nil
	}
}

// wait waits before the next attempt. It returns an error if there must be none.
func (f *follower[T]) wait(ctx context.Context, trouble error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.since.IsZero() {
		f.since = time.Now()
		f.lost(f.Explain(trouble))
	}
	if (apierrors.IsForbidden(trouble) || apierrors.IsUnauthorized(trouble)) && time.Since(f.since) > rejectionPatience {
		return f.Explain(trouble)
	}
	return f.rest(ctx)
}

// rest lets a pause go by, and makes the next one longer.
func (f *follower[T]) rest(ctx context.Context) error {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	f.pause = min(2*f.pause, longestRetry)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
