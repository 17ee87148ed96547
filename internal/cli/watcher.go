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
	// batchPeriod is the delay between a change and the next view. The next view includes all changes during this
	// delay.
	batchPeriod = time.Second
	// redrawPeriod is the maximum time between two views. The ages in a view change even if no object changes.
	redrawPeriod = 10 * time.Second
)

type watcher struct {
	env     *Env
	cluster *Cluster
	scope   scope
	// subject is the subject of messages about the view, such as "The fleet".
	subject string
	// lastShown is the JSON of the last printed view without ages. It is empty on a terminal, where views are drawn
	// in place.
	lastShown string
}

type observed struct {
	view View
	// timeless is the view without ages and other fields that change with time.
	timeless any
	from     []client.ObjectList
	final    bool
}

// follow repeatedly reads and shows a view, until ctx ends or a view is final. The method keeps trying while the API
// server is unreachable.
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
				fmt.Fprintf(w.env.Err, "%s cannot be read. Trying again: %v\n", w.subject, err)
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

// show prints a view. On a terminal, the new view replaces the previous view. Without a terminal, show skips a view
// that differs from the previous view only in ages.
func (w *watcher) show(o observed) error {
	format := w.scope.format
	if w.env.Terminal && (format == asText || format == asWide) {
		fmt.Fprint(w.env.Out, "\x1b[H\x1b[J")
		return w.env.Print(o.view, format)
	}
	content, err := json.Marshal(o.timeless)
	if err != nil || string(content) == w.lastShown {
		return err
	}
	if w.lastShown != "" && format != asJSON {
		fmt.Fprintln(w.env.Out, "---")
	}
	w.lastShown = string(content)
	return w.env.Print(o.view, format)
}

// awaitChange returns when one of the lists may have changed, after redrawPeriod, or when ctx ends.
func (c *Cluster) awaitChange(ctx context.Context, namespace string, found ...client.ObjectList) {
	ctx, cancel := context.WithTimeout(ctx, redrawPeriod)
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, list := range found {
		if list.GetResourceVersion() == "" {
			continue
		}
		events, err := c.Watch(ctx, list, &client.ListOptions{
			Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})
		if err != nil {
			break
		}
		defer events.Stop()
		go announce(events, changed)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// announce waits for the first event of a watch, or for the end of the watch. Then announce sends a value to the
// channel changed.
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
