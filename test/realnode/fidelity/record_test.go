//go:build e2e && linux

package fidelity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type record struct {
	lock    sync.Mutex
	events  []watch.Event
	changed chan struct{}
}

// startRecording starts to record events. Call startRecording before the first node joins.
func (r *record) startRecording(ctx context.Context, config *rest.Config) error {
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &coordinationv1.LeaseList{}, &storagev1.CSINodeList{},
		&certificatesv1.CertificateSigningRequestList{}, &corev1.PodList{}} {
		w, err := c.Watch(ctx, list)
		if err != nil {
			return err
		}
		go func() {
			for event := range w.ResultChan() {
				r.add(event)
			}
		}()
	}
	return nil
}

func (r *record) add(event watch.Event) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.events = append(r.events, event)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *record) eventsAfter(n int) ([]watch.Event, <-chan struct{}) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.events[n:]), r.changed
}

func (r *record) count() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return len(r.events)
}

const patience = 90 * time.Second

// states reads events from the given index until the description of an object contains wanted, and returns the
// descriptions of all these objects. If describe returns "", states ignores the object. Equal consecutive descriptions
// count as one.
func (r *record) states(t *testing.T, from int, describe func(client.Object) string, wanted string) []string {
	t.Helper()
	return r.until(t, from, describe, wanted, func(all []string, text string) bool { return all[len(all)-1] != text })
}

func (r *record) distinctStates(t *testing.T, describe func(client.Object) string, wanted string) []string {
	t.Helper()
	return r.until(t, 0, describe, wanted, func(all []string, text string) bool { return !slices.Contains(all, text) })
}

func (r *record) until(t *testing.T, from int, describe func(client.Object) string, wanted string,
	isNew func(all []string, text string) bool) (all []string) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		events, changed := r.eventsAfter(from)
		all = nil
		for _, e := range events {
			o, ok := e.Object.(client.Object)
			if !ok {
				continue
			}
			text := describe(o)
			if text != "" && e.Type == watch.Deleted {
				text = "gone"
			}
			if text == "" || len(all) > 0 && !isNew(all, text) {
				continue
			}
			if all = append(all, text); strings.Contains(text, wanted) {
				return all
			}
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("no state contains %q, got %s", wanted, strings.Join(all, "\n"))
		}
	}
}

func line(parts ...any) string {
	var all []string
	for _, p := range parts {
		if text := fmt.Sprint(p); text != "" && text != "[]" {
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}
