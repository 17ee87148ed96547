package fidelity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const actors = 2

type testClient struct {
	client.Client
	namespace string
	read      [actors]map[string]client.Object
	versions  map[string]int64
	newest    int64
	owners    map[types.UID]string
}

func newTestClient(c client.Client, namespace string) *testClient {
	w := &testClient{Client: c, namespace: namespace, versions: map[string]int64{}, owners: map[types.UID]string{}}
	for i := range w.read {
		w.read[i] = map[string]client.Object{}
	}
	return w
}

// outcome describes the result of a request. The text omits values that always differ between two servers.
func (w *testClient) outcome(err error, objects ...client.Object) string {
	if err != nil {
		if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
			var causes []string
			if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
				for _, c := range status.Status().Details.Causes {
					switch c.Type {
					case "DisruptionBudget":
						causes = append(causes, string(c.Type))
					case metav1.CauseTypeFieldManagerConflict:
						causes = append(causes, c.Field)
					}
				}
			}
			return fmt.Sprintf("error %s %v", reason, causes)
		}
		if status, ok := err.(apierrors.APIStatus); ok {
			return fmt.Sprintf("error with code %d", status.Status().Code)
		}
		return "error of the client"
	}
	var parts []string
	for _, o := range objects {
		parts = append(parts, w.version(o)+" "+w.describe(o))
	}
	return strings.Join(parts, "\n")
}

func (w *testClient) version(o client.Object) string {
	version, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Sprintf("version %q", o.GetResourceVersion())
	}
	key := fmt.Sprintf("%T %s", o, o.GetName())
	result := "older than before"
	switch last := w.versions[key]; {
	case version > w.newest:
		result = "newest"
	case version == last:
		result = "same as before"
	case version > last:
		result = "newer than before"
	}
	w.newest = max(w.newest, version)
	w.versions[key] = version
	return result
}

func (w *testClient) describe(o client.Object) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err.Error()
	}
	if metadata, ok := content["metadata"].(map[string]any); ok {
		w.normalize(metadata)
	}
	if content["kind"] == nil && strings.HasSuffix(fmt.Sprintf("%T", o), "Pod") || content["kind"] == "Pod" {
		spec, _ := content["spec"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(spec)) {
			if !slices.Contains(podFields, name) {
				delete(spec, name)
			}
		}
	}
	status, _ := content["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		// The server sets the time of this condition, so the time differs.
		if c := c.(map[string]any); c["type"] == "DisruptionTarget" {
			c["lastTransitionTime"] = "set"
		}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

var podFields = []string{"nodeName", "terminationGracePeriodSeconds", "restartPolicy", "dnsPolicy",
	"schedulerName", "tolerations", "priority"}

func (w *testClient) normalize(metadata map[string]any) {
	for _, name := range []string{"uid", "resourceVersion", "managedFields"} {
		delete(metadata, name)
	}
	for _, name := range []string{"creationTimestamp", "deletionTimestamp"} {
		if metadata[name] != nil {
			metadata[name] = "set"
		}
	}
	if prefix, ok := metadata["generateName"].(string); ok {
		name, _ := metadata["name"].(string)
		metadata["name"] = fmt.Sprintf("%s and %d", prefix, len(strings.TrimPrefix(name, prefix)))
	}
	references, _ := metadata["ownerReferences"].([]any)
	for _, r := range references {
		reference := r.(map[string]any)
		uid, _ := reference["uid"].(string)
		if name, ok := w.owners[types.UID(uid)]; ok {
			reference["uid"] = name
		}
	}
}

func (w *testClient) keep(actor int, slot string, o client.Object) {
	w.read[actor][slot] = o
	if o.GetUID() != "" {
		w.owners[o.GetUID()] = slot
	}
}

var background = context.Background()
