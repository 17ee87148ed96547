package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/operator/fence"
)

// deletions notes what the API server answers to deletions.
type deletions struct {
	next http.RoundTripper
	seen *[]string
}

func (a deletions) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodDelete {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return response, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	what := "nothing known"
	for _, kind := range []string{"PartialObjectMetadata", "Status"} {
		if bytes.Contains(body, []byte(kind)) {
			what = kind
			break
		}
	}
	*a.seen = append(*a.seen, fmt.Sprint(response.StatusCode, " ", what))
	return response, err
}

// What is deleted is answered with as little as the API server can say, and yet seen at once by who deleted it: of
// ours and of Kubernetes' own, that stays for a while or goes at once or is another than was meant.
func TestDeletionsAreAnsweredBriefly(t *testing.T) {
	var seen []string
	config := rest.CopyConfig(planes.control.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return deletions{next, &seen} })
	c, err := newCluster(config, clusterOptions{
		scheme: testScheme(), fence: fence.AlwaysOpen(), kinds: []Kind{{Object: &v1beta1.MachineClass{}}},
		readTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	fillCache(t, c)
	namespace := newNamespace(t)

	lost := newClass(namespace, "held")
	lost.Finalizers = []string{"example.com/held"}
	free := newClass(namespace, "free")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secret",
		Finalizers: []string{"example.com/held"}}}
	t.Cleanup(func() {
		for _, o := range []client.Object{lost, secret} {
			if err := c.Live.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		}
	})
	for _, o := range []client.Object{lost, free, secret} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	err = c.Client.Delete(t.Context(), lost, client.Preconditions{UID: ptr.To(secret.UID)})
	if !apierrors.IsConflict(err) {
		t.Errorf("another of the name: %v, want a conflict", err)
	}
	for _, o := range []client.Object{lost, free, secret} {
		if err := c.Client.Delete(t.Context(), o); err != nil {
			t.Errorf("delete %s: %v", o.GetName(), err)
		}
	}
	got := &v1beta1.MachineClass{}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(lost), got); err != nil ||
		got.DeletionTimestamp == nil {
		t.Errorf("what was deleted is read back as %+v, %v", got.ObjectMeta, err)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(free), got); !apierrors.IsNotFound(err) {
		t.Errorf("what has gone is read back: %v", err)
	}
	if err := c.Client.Delete(t.Context(), free); !apierrors.IsNotFound(err) {
		t.Errorf("deleting what has gone: %v", err)
	}
	want := []string{"409 Status", "200 PartialObjectMetadata", "200 Status", "200 PartialObjectMetadata", "404 Status"}
	if !slices.Equal(seen, want) {
		t.Errorf("the answers were %q, want %q", seen, want)
	}
}
