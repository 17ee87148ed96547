package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// Rule: own-flow-control.
func TestFlowSchemasMatchRequests(t *testing.T) {
	c := env.Client(t)
	uid := func(o client.Object, name string) types.UID {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
			t.Fatal(err)
		}
		return o.GetUID()
	}
	const (
		account  = "system:serviceaccount:machinist-system:machinist-manager"
		machines = "GET /apis/machinist.dev/v1beta1/machines"
		pods     = "GET /api/v1/pods"
		node     = "DELETE /api/v1/nodes/a"
		lease    = "GET /apis/coordination.k8s.io/v1/namespaces/machinist-system/leases/machinist-manager"
		leases   = "GET /apis/coordination.k8s.io/v1/leases"
		ready    = "GET /readyz"
	)
	for _, test := range []struct {
		user, group, request, schema, level string
	}{
		{account, "system:serviceaccounts", machines, "machinist", "machinist"},
		{account, "system:serviceaccounts", lease, "machinist-leader-election", "leader-election"},
		{account, "system:serviceaccounts", leases, "machinist", "machinist"},
		{account, "system:serviceaccounts", ready, "probes", "exempt"},
		{"machinist-provider-sim", "machinist-processes", machines, "machinist", "machinist"},
		{"machinist-provider-sim", "machinist-processes", pods, "machinist", "machinist"},
		{"machinist-provider-sim", "machinist-processes", node, "machinist", "machinist"},
		{"machinist-provider-sim", "machinist-processes", lease, "machinist-leader-election", "leader-election"},
		{"machinist-provider-sim", "machinist-processes", ready, "probes", "exempt"},
		{"system:serviceaccount:elsewhere:machinist-manager", "system:serviceaccounts", machines, "service-accounts",
			"workload-low"},
		{"machinist-manager", "others", machines, "global-default", "global-default"},
	} {
		t.Run(fmt.Sprintf("%s as %s: %s", test.user, test.group, test.request), func(t *testing.T) {
			user, err := env.ControlPlane().UserConfig(test.user, test.group)
			if err != nil {
				t.Fatal(err)
			}
			want := [2]string{string(uid(&flowcontrolv1.FlowSchema{}, test.schema)),
				string(uid(&flowcontrolv1.PriorityLevelConfiguration{}, test.level))}
			// The API server applies new flow schemas with a delay.
			deadline, tick := time.After(env.Patience), time.NewTicker(50*time.Millisecond)
			defer tick.Stop()
			for {
				got := queue(t, user, test.request)
				if got == want {
					return
				}
				select {
				case <-deadline:
					t.Fatalf("flow schema and priority level are %v, want %v", got, want)
				case <-tick.C:
				}
			}
		})
	}
}

// queue returns the UIDs of the flow schema and the priority level that the API server used for a request. Error
// responses contain these UIDs too.
func queue(t *testing.T, user *rest.Config, request string) [2]string {
	t.Helper()
	h, err := rest.HTTPClientFor(user)
	if err != nil {
		t.Fatal(err)
	}
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, user.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := h.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return [2]string{response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID),
		response.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)}
}

// Machinist has a guaranteed share of the API server's concurrency, and leaves most of it to other clients.
//
// Rule: own-flow-control.
func TestPriorityLevelHasSmallShare(t *testing.T) {
	list := &flowcontrolv1.PriorityLevelConfigurationList{}
	if err := env.Client(t).List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var total, machinist int32
	for _, level := range list.Items {
		if l := level.Spec.Limited; l != nil && l.NominalConcurrencyShares != nil {
			total += *l.NominalConcurrencyShares
			if level.Name == manifests.FlowControl()[0].GetName() {
				machinist = *l.NominalConcurrencyShares
			}
		}
	}
	if share := float64(machinist) / float64(total); share < 0.1 || share > 0.2 {
		t.Errorf("got %d of %d concurrency shares, want between 10%% and 20%%", machinist, total)
	}
}
