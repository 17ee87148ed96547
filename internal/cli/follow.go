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
	// firstRetry and maxRetry bound the delay between attempts to reach the API server.
	firstRetry, maxRetry = 200 * time.Millisecond, 5 * time.Second
	// shortWatch is the minimum duration of a healthy watch. If a watch ends earlier, the next watch starts with a
	// delay.
	shortWatch = time.Second
	// rejectionTimeout limits the retries of a request that the API server accepted before but rejects now. After a
	// restart, the API server rejects requests until it has loaded the RBAC rules.
	rejectionTimeout = 30 * time.Second
)

type followTexts struct {
	// watchForbiddenAdvice is the advice for users who may not watch the object.
	watchForbiddenAdvice string
	// onDisconnect is called when the connection to the API server is interrupted. The callback is called once per
	// outage.
	onDisconnect func(error)
}

// followObject passes each version of an object to a function. followObject ends when the function returns done or an
// error, or when ctx ends. If the function returns a duration, followObject calls the function again after that
// duration, even if the object has not changed. followObject retries while the API server is unreachable.
func followObject[T client.Object](ctx context.Context, c *Cluster, o T, texts followTexts,
	seen func(T) (done bool, again time.Duration, err error)) error {
	kind, list, err := kindAndList(c, o)
	if err != nil {
		return err
	}
	first := o
	f := follower[T]{Cluster: c, followTexts: texts, kind: kind, list: list, pause: firstRetry}
	for {
		done, again, err := seen(o)
		if done || err != nil {
			f.stop()
			return err
		}
		f.repeatTimer = nil
		if again > 0 {
			f.repeatTimer = time.After(again)
		}
		next, err := f.nextVersion(ctx, o)
		if err != nil {
			f.stop()
			return err
		}
		if next.GetUID() != first.GetUID() {
			f.stop()
			return fmt.Errorf("%s %q was deleted and created again in the meantime", kind, o.GetName())
		}
		o = next
	}
}

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

// read gets the latest version into a new object. Decoding into the old object would keep fields that the server has
// removed.
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

type follower[T client.Object] struct {
	*Cluster
	followTexts
	kind   string
	list   client.ObjectList
	events watch.Interface
	// repeatTimer is the channel of the timer for a repeated call with the same version of the object. The channel is
	// nil if no repetition is due.
	repeatTimer <-chan time.Time
	// hasWatched is true after the first watch has started. started is the start time of the latest watch.
	hasWatched bool
	started    time.Time
	// lostSince is the time of the first failed request of an outage. lostSince is zero while the API server answers.
	lostSince time.Time
	pause     time.Duration
}

func (f *follower[T]) stop() {
	if f.events != nil {
		f.events.Stop()
		f.events = nil
	}
}

// nextVersion waits until the object has changed or f.again receives a value, and returns the object.
func (f *follower[T]) nextVersion(ctx context.Context, o T) (T, error) {
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
		case <-f.repeatTimer:
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
	return fmt.Errorf("%s %q in namespace %q was deleted in the meantime", f.kind, o.GetName(), o.GetNamespace())
}

// resume starts a watch. The first watch starts at metadata.resourceVersion of o. Before a later watch, resume reads
// the object again, and returns the object if it has changed.
func (f *follower[T]) resume(ctx context.Context, o T) (fresh T, changed bool, err error) {
	var none T
	if f.hasWatched && time.Since(f.started) < shortWatch {
		if err := f.sleep(ctx); err != nil {
			return none, false, err
		}
	}
	for {
		from := o
		if f.hasWatched || !f.lostSince.IsZero() {
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
		case apierrors.IsForbidden(err) && !f.hasWatched && f.lostSince.IsZero():
			return none, false, fmt.Errorf("waiting needs the permission to watch; %s: %w", f.watchForbiddenAdvice, f.Explain(err))
		case err != nil:
			if err := f.wait(ctx, err); err != nil {
				return none, false, err
			}
			continue
		}
		f.events, f.hasWatched, f.started, f.lostSince = events, true, time.Now(), time.Time{}
		return from, from.GetResourceVersion() != o.GetResourceVersion(), nil
	}
}

// wait blocks after a failed request until the next attempt may start. If no further attempt is allowed, it returns an
// error.
func (f *follower[T]) wait(ctx context.Context, failure error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.lostSince.IsZero() {
		f.lostSince = time.Now()
		f.onDisconnect(f.Explain(failure))
	}
	rejected := apierrors.IsForbidden(failure) || apierrors.IsUnauthorized(failure)
	if rejected && time.Since(f.lostSince) > rejectionTimeout {
		return f.Explain(failure)
	}
	return f.sleep(ctx)
}

// sleep waits for f.pause and then doubles it, up to maxRetry.
func (f *follower[T]) sleep(ctx context.Context) error {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	f.pause = min(2*f.pause, maxRetry)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
