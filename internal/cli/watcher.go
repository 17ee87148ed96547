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
	// batchPeriod is the time between a change and the next computation of the view. Further changes during this time are
	// part of the same update.
	batchPeriod = time.Second
	// redrawPeriod is the time after which the view is computed again even if nothing has changed, because the view
	// contains ages.
	redrawPeriod = 10 * time.Second
)

// watcher implements the flag -w. It prints a view again whenever the view changes.
type watcher struct {
	env     *Env
	cluster *Cluster
	scope   scope
	// The field what is the name of the view's content in messages, for example "The fleet".
	what string
	// shown is the JSON of the view that was printed last, without ages. If the view is drawn in place on a terminal,
	// shown is empty.
	shown string
}

// observed is a view at one point in time.
type observed struct {
	view View
	// timeless is the view without fields that change merely because time passes, such as ages.
	timeless any
	// from contains the lists of objects from which the view was computed.
	from []client.ObjectList
	// final is true if the view will not change any more.
	final bool
}

// follow calls the function read repeatedly, and shows the views that the function returns. follow ends when ctx ends
// or when a view is final. While the API server is unreachable, follow keeps trying.
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

// show prints a view. On a terminal, the view replaces the previous view. If the output is not a terminal, show prints
// the view only if it differs from the previous view in more than its ages.
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

// awaitChange waits until one of the lists may have changed, but at most for redrawPeriod. It also returns when ctx
// ends.
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
			break // The next call of read reports the error.
		}
		defer events.Stop()
		go announce(events, changed)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// announce waits until the first event of a watch or the end of the watch, and then sends a value to the channel
// changed.
func announce(events watch.Interface, changed chan<- struct{}) {
	<-events.ResultChan()
	select {
	case changed <- struct{}{}:
	default:
	}
}

// wait waits for the duration d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
