package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// batchPeriod is the time after a change in which further changes are collected before the view is computed again.
	batchPeriod = time.Second
	// redrawPeriod is the time after which the view is computed again without a change, because it contains ages.
	redrawPeriod = 10 * time.Second
)

// watcher implements the flag -w: it shows a view again each time that it changes.
type watcher struct {
	env     *Env
	cluster *Cluster
	scope   scope
	// what names the contents of the view in messages, such as "The fleet".
	what string
	// shown is the view printed last, without ages, as JSON. It is empty where the output is drawn in place.
	shown string
}

// observed is a view at one time.
type observed struct {
	view View
	// timeless is the view without fields that change with time alone, such as ages.
	timeless any
	// from are the lists that the view was computed from.
	from []client.ObjectList
	// final is true if the view will not change again.
	final bool
}

// follow shows the views that read returns until ctx ends or a view is final. If the API server becomes unreachable,
// follow tries again until the server answers.
func (w *watcher) follow(ctx context.Context, read func(context.Context) (observed, error)) error {
	first, lost, pause := true, false, firstRetry
	for ctx.Err() == nil {
		o, err := read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			if !lost {
				fmt.Fprintf(w.env.Err, "%s cannot be read. Trying again: %v\n", w.what, err)
			}
			lost = true
			wait(ctx, pause)
			pause = min(2*pause, maxRetry)
			continue
		}
		first, lost, pause = false, false, firstRetry
		if err := w.show(o); err != nil || o.final {
			return err
		}
		w.cluster.awaitChange(ctx, w.scope.namespace(w.cluster), o.from...)
		wait(ctx, batchPeriod)
	}
	return nil
}

// show prints a view. On a terminal it replaces the previous view. Elsewhere it is printed only if it differs from the
// previous view in more than ages.
func (w *watcher) show(o observed) error {
	format := w.scope.format
	if w.env.Terminal && (format == asText || format == asWide) {
		fmt.Fprint(w.env.Out, "\x1b[H\x1b[J")
		return w.env.Print(o.view, format)
	}
	content, err := json.Marshal(o.timeless)
	if err != nil || string(content) == w.shown {
		return err
	}
	if w.shown != "" && format != asJSON {
		fmt.Fprintln(w.env.Out, "---")
	}
	w.shown = string(content)
	return w.env.Print(o.view, format)
}

// awaitChange returns when one of the lists may have changed, after redrawPeriod, or when ctx ends.
func (c *Cluster) awaitChange(ctx context.Context, namespace string, found ...client.ObjectList) {
	ctx, cancel := context.WithTimeout(ctx, redrawPeriod)
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, list := range found {
		if list.GetResourceVersion() == "" {
			continue // The list could not be read.
		}
		events, err := c.Watch(ctx, list, &client.ListOptions{
			Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})
		if err != nil {
			break // The next read reports the error.
		}
		defer events.Stop()
		go announce(events, changed)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// announce sends to changed at the first event of a watch, or when the watch ends.
func announce(events watch.Interface, changed chan<- struct{}) {
	<-events.ResultChan()
	select {
	case changed <- struct{}{}:
	default:
	}
}

// wait returns after d or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
