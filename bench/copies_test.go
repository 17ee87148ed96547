package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	setUID     = "11111111-0000-4000-8000-000000000001"
	machineUID = "22222222-0000-4000-8000-000000000002"
	nodeUID    = "33333333-0000-4000-8000-000000000003"
	clusterUID = "44444444-0000-4000-8000-000000000004"
)

func recordedFleet(t *testing.T) map[string]*unstructured.UnstructuredList {
	t.Helper()
	lists := map[string]*unstructured.UnstructuredList{}
	for resource, text := range map[string]string{
		"machinesets": `{"metadata":{"resourceVersion":"99"},"items":[{"metadata":{"namespace":"default","name":"pool-abc",
			"uid":"` + setUID + `"}}]}`,
		"machines": `{"metadata":{"resourceVersion":"100"},"items":[{"metadata":{"namespace":"default","name":"pool-abc-x",
			"uid":"` + machineUID + `","annotations":{"cluster":"` + clusterUID + `","key":"default/pool-abc-x"},
			"ownerReferences":[{"name":"pool-abc","uid":"` + setUID + `"}]},
			"spec":{"providerID":"sim:///0123456789"},"status":{"nodeRef":{"name":"pool-abc-x","uid":"` + nodeUID + `"}}}]}`,
		"nodes": `{"metadata":{"resourceVersion":"98"},"items":[{"metadata":{"name":"pool-abc-x","uid":"` + nodeUID + `",
			"annotations":{"` + v1beta1.NodeAnnotationClusterNamespace + `":"default"}},
			"spec":{"providerID":"sim:///0123456789"}}]}`,
	} {
		list := &unstructured.UnstructuredList{}
		var content map[string]any
		if err := json.Unmarshal([]byte(text), &content); err != nil {
			t.Fatal(err)
		}
		list.SetUnstructuredContent(content)
		lists[resource] = list
	}
	return lists
}

// References between the objects of one copy must remain valid.
func TestCopiesHaveOwnNamesAndIDs(t *testing.T) {
	c, err := newCopies(recordedFleet(t), 20)
	if err != nil {
		t.Fatal(err)
	}
	if c.version != "100" {
		t.Errorf("got version %s, want 100, that of the newest list", c.version)
	}
	machine := string(c.object("machines", 17))
	node := string(c.object("nodes", 17))
	for _, test := range []struct{ in, want string }{
		{machine, `"namespace":"copy-0017"`},
		{machine, `"name":"set0017-pool-abc-x"`},
		{machine, `"key":"copy-0017/set0017-pool-abc-x"`},
		{machine, `{"name":"set0017-pool-abc","uid":"0017` + setUID[4:] + `"}`},
		{machine, `"uid":"0017` + machineUID[4:] + `"`},
		{machine, `"providerID":"sim:///0017456789"`},
		{machine, `"cluster":"` + clusterUID + `"`},
		{node, `"providerID":"sim:///0017456789"`},
		{node, `"uid":"0017` + nodeUID[4:] + `"`},
		{node, `"` + v1beta1.NodeAnnotationClusterNamespace + `":"copy-0017"`},
		{string(c.object("machinesets", 17)), `"name":"set0017-pool-abc"`},
	} {
		if !strings.Contains(test.in, test.want) {
			t.Errorf("missing %s in %s", test.want, test.in)
		}
	}
}

func TestFindReturnsCopyOfNamespace(t *testing.T) {
	c := &copies{count: 20}
	for name, want := range map[string]bool{"copy-0000": true, "copy-0019": true, "copy-0020": false, "copy-1": false,
		"copy-00190": false, "default": false, "": false} {
		if _, got := c.find(name); got != want {
			t.Errorf("find(%q): got %t, want %t", name, got, want)
		}
	}
}

func TestNewCopiesRefusesIncompleteFleet(t *testing.T) {
	lists := recordedFleet(t)
	unstructured.RemoveNestedField(lists["machines"].Items[0].Object, "spec", "providerID")
	if _, err := newCopies(lists, 1); err == nil {
		t.Error("got no error for a Machine without an instance")
	}
	lists = recordedFleet(t)
	lists["machinesets"].Items = nil
	if _, err := newCopies(lists, 1); err == nil {
		t.Error("got no error for Machines without a set")
	}
}

func startStandIn(t *testing.T, count int) *standIn {
	t.Helper()
	c, err := newCopies(recordedFleet(t), count)
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(backend.Close)
	s, err := newStandIn(c, &rest.Config{Host: backend.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

var initialEvents = metav1.ListOptions{SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true,
	ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}

func initialNames(t *testing.T, w watch.Interface, err error) (names []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(metav1.Object)
		if !ok {
			t.Fatalf("got the event %s with a %T", e.Type, e.Object)
		}
		if e.Type == watch.Bookmark {
			if object.GetResourceVersion() != "100" || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("got the bookmark %v", object)
			}
			return names
		}
		names = append(names, object.GetName())
	}
	t.Fatal("the watch ended before the bookmark")
	return nil
}

func TestStandInServesWatchesAndPages(t *testing.T) {
	s := startStandIn(t, 3)
	want := []string{"set0000-pool-abc-x", "set0001-pool-abc-x", "set0002-pool-abc-x"}

	machines := dynamic.NewForConfigOrDie(s.config()).Resource(v1beta1.GroupVersion.WithResource("machines"))
	w, err := machines.Watch(t.Context(), initialEvents)
	if got := initialNames(t, w, err); !slices.Equal(got, want) {
		t.Errorf("watch: got %q, want %q", got, want)
	}
	for _, binary := range []bool{true, false} {
		config := s.config()
		if binary {
			config.ContentType = runtime.ContentTypeProtobuf
		}
		w, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().Watch(t.Context(), initialEvents)
		if got := initialNames(t, w, err); !slices.Equal(got, want) {
			t.Errorf("watch of Nodes with protobuf %t: got %q, want %q", binary, got, want)
		}
	}
	var listed []string
	options := metav1.ListOptions{Limit: 2}
	for pages := 1; ; pages++ {
		page, err := machines.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Items {
			listed = append(listed, m.GetName())
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			if pages != 2 || !slices.Equal(listed, want) {
				t.Errorf("list: got %q in %d pages, want %q in 2", listed, pages, want)
			}
			break
		}
	}
	if m, err := machines.Namespace("copy-0001").Get(t.Context(), want[1], metav1.GetOptions{}); err != nil ||
		m.GetNamespace() != "copy-0001" {
		t.Errorf("get: got %v, %v", m, err)
	}
	if _, err := machines.Namespace("copy-0001").Get(t.Context(), want[2], metav1.GetOptions{}); err == nil {
		t.Error("get: found a Machine in another namespace")
	}
	list, err := machines.Namespace("copy-0001").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != want[1] {
		t.Errorf("list of namespace copy-0001: got %v, %v", list, err)
	}
}

func TestStandInServesMetadata(t *testing.T) {
	s := startStandIn(t, 3)
	want := []string{"set0000-pool-abc-x", "set0001-pool-abc-x", "set0002-pool-abc-x"}
	machines := metadata.NewForConfigOrDie(s.config()).Resource(v1beta1.GroupVersion.WithResource("machines"))
	w, err := machines.Watch(t.Context(), initialEvents)
	if got := initialNames(t, w, err); !slices.Equal(got, want) {
		t.Errorf("watch: got %q, want %q", got, want)
	}
	list, err := machines.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range list.Items {
		listed = append(listed, m.Name)
	}
	if !slices.Equal(listed, want) {
		t.Errorf("list: got %q, want %q", listed, want)
	}
}

// A write to a copy shows that the fleet has not settled. A write to a Lease does not show this, because Leases are not
// copied.
func TestStandInReportsWriteToCopy(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		resource, namespace string
		unsettled           bool
	}{
		{"machines", "copy-0002", true},
		{"nodes", "", true},
		{"machines", "copy-0003", false},
		{"leases", "machinist-system", false},
	} {
		s := startStandIn(t, 3)
		group := schema.GroupVersion{Version: "v1"}
		if test.resource == "machines" {
			group = v1beta1.GroupVersion
		}
		r := dynamic.NewForConfigOrDie(s.config()).Resource(group.WithResource(test.resource))
		err := r.Namespace(test.namespace).Delete(ctx, "any", metav1.DeleteOptions{})
		if err == nil {
			t.Errorf("%+v: the request did not reach the server behind the stand-in", test)
		}
		if _, err := s.checkSettled(); err != nil != test.unsettled {
			t.Errorf("%+v: got error %v", test, err)
		}
	}
}
