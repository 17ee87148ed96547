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
	// settle is how long changes are gathered before the fleet is read again, redraw how long it is not although nothing
	// changed: ages do.
	settle = time.Second
	redraw = 10 * time.Second
)

// watcher shows a view again when it changes: -w.
type watcher struct {
	env     *Env
	cluster *Cluster
	scope   scope
	// what is shown, for messages, such as "The fleet".
	what string
	// shown is what was printed last where that is not drawn over.
	shown string
}

// observed is what was read once.
type observed struct {
	view View
	// timeless is the view without what changes by itself.
	timeless any
	// from are the lists that it was made from.
	from []client.ObjectList
	// final: it does not change any more.
	final bool
}

// follow shows what read returns until ctx ends or it is final. An API server that becomes unreachable is waited for.
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
				fmt.Fprintf(w.env.Err, "%s cannot be read, trying again: %v\n", w.what, err)
			}
			lost = true
			wait(ctx, pause)
			pause = min(2*pause, longestRetry)
			continue
		}
		first, lost, pause = false, false, firstRetry
		if err := w.show(o); err != nil || o.final {
			return err
		}
		w.cluster.awaitChange(ctx, w.scope.namespace(w.cluster), o.from...)
		wait(ctx, settle)
	}
	return nil
}

// show prints a view, on a terminal in place of the one before, elsewhere if it says anything new.
func (w *watcher) show(o observed) error {
	format := w.scope.format
	if w.env.Terminal && (format == asText || format == asWide) {
		fmt.Fprint(w.env.Out, "\x1b[H\x1b[J")
		return w.env.Print(o.view, format)
	}
	said, err := json.Marshal(o.timeless)
	if err != nil || string(said) == w.shown {
		return err
	}
	if w.shown != "" && format != asJSON {
		fmt.Fprintln(w.env.Out, "---")
	}
	w.shown = string(said)
	return w.env.Print(o.view, format)
}

// awaitChange returns when something of what was read has changed, or may have, or it is time to draw ages anew.
func (c *Cluster) awaitChange(ctx context.Context, namespace string, found ...client.ObjectList) {
	ctx, cancel := context.WithTimeout(ctx, redraw)
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, list := range found {
		if list.GetResourceVersion() == "" {
			continue // It could not be read.
		}
		events, err := c.Watch(ctx, list, &client.ListOptions{
			Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})
		if err != nil {
			break // Reading again will tell what is wrong; until then time passes.
		}
		defer events.Stop()
		go announce(events, changed)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// announce tells of the first event of a watch, be it its end.
func announce(events watch.Interface, changed chan<- struct{}) {
	<-events.ResultChan()
	select {
	case changed <- struct{}{}:
	default:
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
