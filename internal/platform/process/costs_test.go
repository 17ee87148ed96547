package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/process/fence"
)

type answerSizes struct {
	next  http.RoundTripper
	bytes *int
}

func (a answerSizes) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(r)
	if err != nil || r.URL.Query().Has("watch") {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	*a.bytes += len(body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, err
}

func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// Code that replaces a part of client-go or controller-runtime must need less memory or traffic. This test logs the
// figures that comments mention. The test fails only at clearly worse figures, because other versions of the libraries
// differ slightly.
func TestDeparturesFromTheLibrariesAreCheaper(t *testing.T) {
	const fleet = 200
	var answered int
	config := rest.CopyConfig(planes.control.Config())
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return answerSizes{next, &answered} })
	c, err := newCluster(config, clusterOptions{
		scheme: testScheme(), fence: fence.AlwaysOpen(), kinds: []Kind{{Object: &v1beta1.Machine{}}}, readTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	namespace := newNamespace(t)
	direct, err := client.NewWithWatch(config, client.Options{Scheme: testScheme()})
	if err != nil {
		t.Fatal(err)
	}
	var machines []*v1beta1.Machine
	for i := range fleet {
		m := wideMachine(fmt.Sprintf("m-%d", i))
		m.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: m.Name, Labels: map[string]string{"pool": "web"},
			Finalizers: []string{"example.com/in-use"}}
		m.Spec.ClassRef, m.Spec.ProviderSpec.Raw = nil, []byte(`{"apiVersion":"x/v1","kind":"X"}`)
		if err := direct.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		machines = append(machines, m)
	}
	t.Cleanup(func() {
		for _, m := range machines {
			err := direct.Patch(context.Background(), m, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`)))
			if client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	fillCache(t, c)
	here := client.InNamespace(namespace)

	t.Run("a list of shared objects", func(t *testing.T) {
		list := func() {
			if err := c.Client.List(t.Context(), &v1beta1.MachineList{}, here, client.UnsafeDisableDeepCopy); err != nil {
				t.Fatal(err)
			}
		}
		share := func() {
			shared, err := index.ListShared[v1beta1.Machine](t.Context(), c.Client, &v1beta1.MachineList{}, here)
			if err != nil || len(shared) != fleet {
				t.Fatal(len(shared), err)
			}
		}
		list()
		share()
		copies, shared := allocated(list)/fleet, allocated(share)/fleet
		t.Logf("allocated per object: %d bytes for List, %d for Shared", copies, shared)
		if shared*4 > copies {
			t.Errorf("Shared allocates %d bytes per object, List %d", shared, copies)
		}
	})

	t.Run("a live list in pages", func(t *testing.T) {
		var largest int
		counting := interceptor.NewClient(direct, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				answered = 0
				err := c.List(ctx, list, o...)
				largest = max(largest, answered)
				return err
			},
		})
		answerOf := func(page int64) int {
			largest = 0
			var list v1beta1.MachineList
			if err := (pagedClient{counting, page}).List(t.Context(), &list, here); err != nil || len(list.Items) != fleet {
				t.Fatal(len(list.Items), err)
			}
			return largest
		}
		inOnePiece, page := answerOf(2*fleet), answerOf(fleet/10)
		t.Logf("the largest answer has %d bytes per object for %d objects in one piece, %d in ten pages",
			inOnePiece/fleet, fleet, page/fleet)
		if page*5 > inOnePiece {
			t.Errorf("the largest of ten pages has %d bytes, the whole list %d", page, inOnePiece)
		}
	})
}

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
