package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type subscription struct {
	front   *Front
	kind    *kind
	options client.ListOptions
	seen    int64
}

type event struct {
	kind   watch.EventType
	object client.Object
}

func (s *subscription) selects(o client.Object) bool {
	if o == nil || s.options.Namespace != "" && o.GetNamespace() != s.options.Namespace {
		return false
	}
	if s.options.LabelSelector != nil && !s.options.LabelSelector.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if s.options.FieldSelector == nil || s.options.FieldSelector.Empty() {
		return true
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	for name, value := range s.kind.strategy.fields(o) {
		set[name] = value
	}
	return s.options.FieldSelector.Matches(set)
}

func (s *subscription) begin() ([]event, error) {
	var all []event
	err := s.front.locked(func() error {
		records, err := s.front.server.list(s.kind, &s.options)
		for _, r := range records {
			all = append(all, event{watch.Added, r.object})
		}
		s.seen = s.front.server.Revision()
		return err
	})
	return all, err
}

func (s *subscription) next(ctx context.Context) ([]event, error) {
	for {
		s.front.mu.Lock()
		changes, committed := s.front.server.Changes(s.seen), s.front.committed
		s.seen = s.front.server.Revision()
		s.front.mu.Unlock()
		var all []event
		for _, c := range changes {
			if c.GVK != s.kind.gvk {
				continue
			}
			before, after := s.selects(c.Old), s.selects(c.New) && c.Type != watch.Deleted
			switch {
			case before && after:
				all = append(all, event{watch.Modified, c.New})
			case after:
				all = append(all, event{watch.Added, c.New})
			case before:
				all = append(all, event{watch.Deleted, c.New})
			}
		}
		if len(all) > 0 {
			return all, nil
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *Front) watchHTTP(w http.ResponseWriter, r *http.Request, c call) {
	s := &subscription{front: f, kind: c.kind, options: c.list}
	query := r.URL.Query()
	var events []event
	var err error
	initial := query.Get("sendInitialEvents") == "true"
	if from := query.Get("resourceVersion"); initial || from == "" || from == "0" {
		events, err = s.begin()
	} else if s.seen, err = strconv.ParseInt(from, 10, 64); err != nil {
		err = apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		status := statusOf(err)
		write(w, int(status.Code), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	ctx := r.Context()
	flush := http.NewResponseController(w).Flush
	send := func(kind watch.EventType, content map[string]any) error {
		if wantsMetadata(r) {
			content = partial(content)
		}
		return json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": content})
	}
	for {
		for _, e := range events {
			content, err := contentOf(c.kind, e.object)
			if err == nil {
				err = send(e.kind, content)
			}
			if err != nil {
				return // The client sees that the watch ended and starts a new one.
			}
		}
		if initial {
			initial = false
			if send(watch.Bookmark, map[string]any{"apiVersion": c.kind.gvk.GroupVersion().String(), "kind": c.kind.gvk.Kind,
				"metadata": map[string]any{"resourceVersion": formatRevision(s.seen),
					"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}}) != nil {
				return
			}
		}
		if flush() != nil {
			return
		}
		if events, err = s.next(ctx); err != nil {
			return
		}
	}
}

func contentOf(k *kind, o client.Object) (map[string]any, error) {
	if c, ok := o.(*Custom); ok {
		return (&record{key: client.ObjectKeyFromObject(o), meta: &c.ObjectMeta, body: c.Content}).content(k)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", k.gvk.Kind, o.GetName(), err)
	}
	return content, nil
}

// Watch implements client.WithWatch for typed lists.
func (c *sharedClient) Watch(ctx context.Context, list client.ObjectList,
	options ...client.ListOption) (watch.Interface, error) {
	k, err := c.live.kindOf(ctx, list)
	if err != nil {
		return nil, err
	}
	s := &subscription{front: c.front, kind: k}
	s.options.ApplyOptions(options)
	var first []event
	from := ""
	if s.options.Raw != nil {
		from = s.options.Raw.ResourceVersion
	}
	if from == "" || from == "0" {
		first, err = s.begin()
	} else {
		s.seen, err = strconv.ParseInt(from, 10, 64)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer cancel()
		for {
			for _, e := range first {
				select {
				case events <- watch.Event{Type: e.kind, Object: e.object.DeepCopyObject()}:
				case <-w.StopChan():
					return
				case <-ctx.Done():
					return
				}
			}
			if first, err = s.next(ctx); errors.Is(err, context.Canceled) || err != nil {
				return
			}
		}
	}()
	go func() {
		<-w.StopChan()
		cancel()
	}()
	return w, nil
}
