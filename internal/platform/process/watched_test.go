package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/api/v1beta1"
)

// wideMachine has something in fields of all sorts.
func wideMachine(name string) *v1beta1.Machine {
	now := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	m := &v1beta1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: "u-1", ResourceVersion: "17", Generation: 3, CreationTimestamp: now,
			DeletionTimestamp: &now,
			Labels:            map[string]string{"a": "ä \" \\ \u2028"},
			Annotations:       map[string]string{"json": `{"type":"ERROR","object":{}}`},
			Finalizers:        []string{v1beta1.MachineFinalizer},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}},
		},
	}
	m.Spec.Provider, m.Spec.ProviderID = "sim", "sim:///"+name
	m.Spec.ProviderSpec = &apiruntime.RawExtension{Raw: []byte(`{"apiVersion":"x/v1","kind":"X","large":9007199254740993,"nested":{"list":[1,2.5,null,true]}}`)}
	m.Status.Phase = v1beta1.MachineRunning
	m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Fine", LastTransitionTime: now}}
	return m
}

func eventOf(t testing.TB, of watch.EventType, object any) string {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", of, raw)
}

// bothWatches returns how to watch Machines at a server that says the same to everybody, here and with client-go.
func bothWatches(t testing.TB, reports string) map[string]func(context.Context) (watch.Interface, error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reports)
	}))
	t.Cleanup(s.Close)
	config, scheme := &rest.Config{Host: s.URL}, testScheme()
	c, err := apiutil.RESTClientForGVK(v1beta1.GroupVersion.WithKind("Machine"), false, false, config,
		serializer.NewCodecFactory(scheme), http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	own, err := watches{config: config, http: http.DefaultClient, scheme: scheme,
		mapper: knownFirst(nil)}.own(&toolscache.ListWatch{}, &v1beta1.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(context.Context) (watch.Interface, error){
		"own": func(ctx context.Context) (watch.Interface, error) {
			return toolscache.ToListerWatcherWithContext(own).WatchWithContext(ctx, metav1.ListOptions{})
		},
		"client-go": c.Get().Resource("machines").Watch,
	}
}

// reported returns all that a watch tells.
func reported(t testing.TB, open func(context.Context) (watch.Interface, error)) []watch.Event {
	t.Helper()
	w, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var all []watch.Event
	for e := range w.ResultChan() {
		all = append(all, e)
	}
	return all
}

func TestWatchesDeliverWhatThoseOfClientGoDeliver(t *testing.T) {
	t.Parallel()
	bookmark := &v1beta1.Machine{TypeMeta: wideMachine("").TypeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "99",
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	expired := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"}
	changed := wideMachine("b")
	changed.Status.Conditions = nil
	body := eventOf(t, watch.Added, wideMachine("a")) + eventOf(t, watch.Modified, changed) + " \n" +
		eventOf(t, watch.Deleted, wideMachine("c")) +
		eventOf(t, watch.Bookmark, bookmark) + strings.ReplaceAll(eventOf(t, watch.Error, expired), `,"object"`,
		`, "new": [{}], "object"`)
	both := bothWatches(t, body)
	ours, theirs := reported(t, both["own"]), reported(t, both["client-go"])
	if len(theirs) != 5 {
		t.Fatalf("client-go is got %d events, want 5", len(theirs))
	}
	if !equality.Semantic.DeepEqual(ours, theirs) {
		t.Errorf("got  %v\nwant %v", ours, theirs)
	}
}

func TestABrokenWatchEventIsAnError(t *testing.T) {
	t.Parallel()
	machine := eventOf(t, watch.Added, wideMachine("a"))
	set := &v1beta1.MachineSet{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineSet"}}
	for name, test := range map[string]struct{ stream, want string }{
		"the end":              {"", io.EOF.Error()},
		"cut off":              {machine[:len(machine)/2], io.ErrUnexpectedEOF.Error()},
		"cut off after a name": {`{"type"`, io.ErrUnexpectedEOF.Error()},
		"before its brace":     {machine[:len(machine)-2], io.ErrUnexpectedEOF.Error()},
		"no object":            {`{"type":"ADDED"}`, `a watch event "ADDED" has no object`},
		"no type":              {`{"object":{}}`, "a watch event has no type before its object"},
		"another kind":         {eventOf(t, watch.Added, set), "Kind=MachineSet"},
		"a list":               {`[]`, "a watch event has [ where { is expected"},
		"a wrong type":         {`{"type":"ADDED","object":{"spec":7}}`, "spec"},
		"no JSON":              {`<html>`, "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newEvents(io.NopCloser(strings.NewReader(test.stream)), v1beta1.GroupVersion.WithKind("Machine"), testScheme())
			_, _, err := d.Decode()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if test.want == io.ErrUnexpectedEOF.Error() && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want it to be known as the end of the stream", err)
			}
		})
	}
}

func FuzzWatchEvents(f *testing.F) {
	f.Add(`{"type":"ADDED","object":{"apiVersion":"machinist.dev/v1beta1","kind":"Machine","metadata":{"name":"a"}}}`)
	f.Add(`{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","code":410}} {"type":`)
	scheme := testScheme()
	f.Fuzz(func(t *testing.T, stream string) {
		d := newEvents(io.NopCloser(strings.NewReader(stream)), v1beta1.GroupVersion.WithKind("Machine"), scheme)
		for range len(stream) + 1 {
			of, object, err := d.Decode()
			if err != nil {
				return
			}
			if of == "" || object == nil {
				t.Fatalf("an event %q with %v is no error", of, object)
			}
		}
		t.Fatal("more events than there are bytes")
	})
}

// BenchmarkWatchEvents shows in one run what an event costs here and with client-go.
func BenchmarkWatchEvents(b *testing.B) {
	event := eventOf(b, watch.Modified, wideMachine("a"))
	for _, whose := range []string{"own", "client-go"} {
		b.Run(whose, func(b *testing.B) {
			open := bothWatches(b, strings.Repeat(event, b.N))[whose]
			b.ReportAllocs()
			b.ResetTimer()
			if got := len(reported(b, open)); got != b.N {
				b.Fatalf("got %d events, want %d", got, b.N)
			}
		})
	}
}
