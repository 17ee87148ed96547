package cli

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
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

// follow calls seen with the deployment and with each later version of it, until that says done, returns an error, or
// ctx ends. If it says when to check again it is called then at the latest. A watch that ends is begun again, and an
// API server that is unreachable is waited for: lost is called once for each time.
func (c *Cluster) follow(ctx context.Context, d *v1beta1.MachineDeployment,
	seen func(*v1beta1.MachineDeployment) (done bool, again time.Duration, err error), lost func(error)) error {
	first := d
	f := follower{Cluster: c, lost: lost, pause: firstRetry}
	for {
		done, again, err := seen(d)
		if done || err != nil {
			f.stop()
			return err
		}
		f.again = nil
		if again > 0 {
			f.again = time.After(again)
		}
		next, err := f.next(ctx, d)
		if err != nil {
			f.stop()
			return err
		}
		if next.UID != first.UID {
			f.stop()
			return fmt.Errorf("machinedeployment %q was deleted and made again meanwhile", d.Name)
		}
		d = next
	}
}

// follower is a watch that is begun again when it ends.
type follower struct {
	*Cluster
	lost   func(error)
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

func (f *follower) stop() {
	if f.events != nil {
		f.events.Stop()
		f.events = nil
	}
}

// next returns the next version of the deployment.
func (f *follower) next(ctx context.Context, d *v1beta1.MachineDeployment) (*v1beta1.MachineDeployment, error) {
	for {
		if f.events == nil {
			fresh, err := f.resume(ctx, d)
			if err != nil || fresh != nil {
				return fresh, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.again:
			return d, nil
		case event, open := <-f.events.ResultChan():
			got, _ := event.Object.(*v1beta1.MachineDeployment)
			switch {
			case !open, event.Type == watch.Error, got == nil && event.Type != watch.Bookmark:
				f.stop()
			case event.Type == watch.Deleted:
				return nil, deleted(d)
			case event.Type == watch.Added, event.Type == watch.Modified:
				f.pause = firstRetry
				return got, nil
			}
		}
	}
}

func deleted(d *v1beta1.MachineDeployment) error {
	return fmt.Errorf("machinedeployment %q in namespace %q was deleted meanwhile", d.Name, d.Namespace)
}

// resume begins the watch, from the version that is known if that is the first one. After that it reads what is there
// now, and returns it if it is news.
func (f *follower) resume(ctx context.Context, d *v1beta1.MachineDeployment) (*v1beta1.MachineDeployment, error) {
	if f.watched && time.Since(f.started) < shortWatch {
		if err := f.rest(ctx); err != nil {
			return nil, err
		}
	}
	for {
		from := d
		if f.watched || !f.since.IsZero() {
			fresh := &v1beta1.MachineDeployment{}
			switch err := f.Get(ctx, client.ObjectKeyFromObject(d), fresh); {
			case apierrors.IsNotFound(err) && !isUnknownResource(err):
				return nil, deleted(d)
			case err != nil:
				if err := f.wait(ctx, err); err != nil {
					return nil, err
				}
				continue
			}
			from = fresh
		}
		events, err := f.Watch(ctx, &v1beta1.MachineDeploymentList{}, &client.ListOptions{
			Namespace:     d.Namespace,
			FieldSelector: fields.OneTermEqualSelector("metadata.name", d.Name),
			Raw:           &metav1.ListOptions{ResourceVersion: from.ResourceVersion},
		})
		switch {
		case apierrors.IsForbidden(err) && !f.watched && f.since.IsZero():
			return nil, fmt.Errorf("to wait for the rollout the verb watch is needed; --watch=false shows how it stands: %w",
				f.Explain(err))
		case err != nil:
			if err := f.wait(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		f.events, f.watched, f.started, f.since = events, true, time.Now(), time.Time{}
		if from.ResourceVersion != d.ResourceVersion {
			return from, nil
		}
		return nil, nil
	}
}

// wait waits before the next attempt. It returns an error if there must be none.
func (f *follower) wait(ctx context.Context, trouble error) error {
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
func (f *follower) rest(ctx context.Context) error {
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
