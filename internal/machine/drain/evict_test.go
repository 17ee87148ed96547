package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func refusedBy(budget string, retryAfter int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + budget +
			" needs 2 healthy pods and has 2 currently",
	}}
	return err
}

func TestResultOfAnAttempt(t *testing.T) {
	podResource := schema.GroupResource{Resource: "pods"}
	soon := func(d time.Duration, failures int, why string) Attempt {
		return Attempt{Failures: failures, FirstFailure: noon, NotBefore: at(d), Explanation: why}
	}
	const rejection = "The disruption budget db needs 2 healthy pods and has 2 currently"
	refused := func(d time.Duration, failures int) Attempt {
		return Attempt{Failures: failures, FirstFailure: noon, NotBefore: at(d), IsRefused: true, Explanation: rejection}
	}
	denied := func(message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Message: message}}
	}
	const hangs = "the API server did not answer, perhaps because an admission webhook hangs: context deadline exceeded"
	tests := []struct {
		name   string
		action Action
		err    error
		before Attempt
		result result
		try    Attempt
	}{
		{name: "evicted", action: ActionEvict, result: evicted},
		{name: "deleted", action: ActionDelete, result: deleted},
		{name: "deleted already", action: ActionEvict, err: apierrors.NewNotFound(podResource, "web"), result: gone},
		{name: "another pod with the name", action: ActionDelete, err: apierrors.NewConflict(podResource, "web", errors.New("UID")),
			result: gone},
		{name: "refused by a budget", action: ActionEvict, err: refusedBy("db", 0), result: blocked,
			try: refused(5*time.Second, 1)},
		{name: "refused twice", action: ActionEvict, err: refusedBy("db", 0), before: Attempt{Failures: 1}, result: blocked,
			try: refused(10*time.Second, 2)},
		{name: "refused four times", action: ActionEvict, err: refusedBy("db", 0), before: Attempt{Failures: 3}, result: blocked,
			try: refused(40*time.Second, 4)},
		{name: "refused five times", action: ActionEvict, err: refusedBy("db", 0), before: Attempt{Failures: 4}, result: blocked,
			try: refused(time.Minute, 5)},
		{name: "refused very often", action: ActionEvict, err: refusedBy("db", 0), before: Attempt{Failures: 1 << 40}, result: blocked,
			try: refused(time.Minute, 1<<40+1)},
		{name: "refused, wrapped", action: ActionEvict, err: fmt.Errorf("evict: %w", refusedBy("db", 0)), result: blocked,
			try: refused(5*time.Second, 1)},
		{name: "refused by a budget, with Retry-After", action: ActionEvict, err: refusedBy("db", 10), result: blocked,
			try: refused(5*time.Second, 1)},
		{name: "throttled", action: ActionEvict, err: apierrors.NewTooManyRequests("slow down", 17), result: throttled,
			try: soon(17*time.Second, 1, "the API server throttles requests")},
		{name: "throttled for too long", action: ActionEvict, err: apierrors.NewTooManyRequests("slow down", 9999),
			result: throttled,
			try:    soon(time.Minute, 1, "the API server throttles requests")},
		{name: "throttled without a time", action: ActionEvict, err: apierrors.NewGenericServerResponse(http.StatusTooManyRequests,
			"post", podResource, "web", "", 0, true),
			result: throttled, try: soon(5*time.Second, 1, "the API server throttles requests")},
		{name: "denied", action: ActionEvict, err: denied(strings.Repeat("é", 300)), result: failed,
			try: soon(5*time.Second, 1, strings.Repeat("é", 256)+"…")},
		{name: "not answered", action: ActionEvict, err: context.DeadlineExceeded, result: failed,
			try: Attempt{Failures: 1, FirstFailure: noon, NotBefore: at(5 * time.Second),
				UnansweredAction: ActionEvict, Explanation: hangs}},
		{name: "refused after it was not answered", action: ActionEvict, err: refusedBy("db", 0),
			before: Attempt{Failures: 1, UnansweredAction: ActionEvict}, result: blocked,
			try: Attempt{Failures: 2, FirstFailure: noon, NotBefore: at(10 * time.Second),
				UnansweredAction: ActionEvict, IsRefused: true,
				Explanation: rejection}},
		{name: "a deletion is not answered", action: ActionDelete, err: context.DeadlineExceeded,
			before: Attempt{Failures: 2, UnansweredAction: ActionEvict}, result: failed,
			try: Attempt{Failures: 1, FirstFailure: noon, NotBefore: at(time.Second), FirstDeletion: noon,
				UnansweredAction: ActionDelete, Explanation: hangs}},
		{name: "a deletion fails after refused evictions", action: ActionDelete, err: denied("denied"),
			before: Attempt{Failures: 7}, result: failed,
			try: Attempt{Failures: 1, FirstFailure: noon, NotBefore: at(time.Second), FirstDeletion: noon,
				Explanation: "denied"}},
		{name: "a deletion fails again", action: ActionDelete, err: denied("denied"),
			before: Attempt{Failures: 2, FirstFailure: at(-2 * time.Hour), FirstDeletion: at(-time.Hour)}, result: failed,
			try: Attempt{Failures: 3, FirstFailure: at(-2 * time.Hour), NotBefore: at(4 * time.Second),
				FirstDeletion: at(-time.Hour),
				Explanation:   "denied"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result, try := resultOf(test.action, test.err, test.before, noon)
			if result != test.result {
				t.Errorf("got result %s, want %s", result, test.result)
			}
			if diff := cmp.Diff(test.try, try); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A client that sleeps for the Retry-After of the API server would block a worker.
func TestClientDoesNotRetryEvictions(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if want := "/api/v1/namespaces/a/pods/web/eviction"; r.URL.Path != want || r.Method != http.MethodPost {
			t.Errorf("got %s %s, want POST %s", r.Method, r.URL.Path, want)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		status := apierrors.NewTooManyRequests("slow down", 3600).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	evict, err := EvictWith(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = evict(context.Background(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}})
	if result, try := resultOf(ActionEvict, err, Attempt{}, noon); result != throttled ||
		!try.NotBefore.Equal(at(time.Minute)) {
		t.Errorf("got %s and %+v for %v", result, try, err)
	}
	if asked != 1 {
		t.Errorf("asked %d times, want 1", asked)
	}
}
