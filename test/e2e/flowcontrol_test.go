//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"machinist.dev/machinist/devel/stack"
)

// The API server uses a separate priority level for our processes. Renewals of the Leases of these processes use the
// priority level of Kubernetes' controllers.
//
// Rule: own-flow-control.
func TestProcessesUseTheirPriorityLevel(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ExtraAPIServerArgs: []string{olderAPIServer}})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	api, err := kubernetes.NewForConfig(m.Control.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`flow_schema="machinist",priority_level="machinist"`,
		`flow_schema="machinist-leader-election",priority_level="leader-election"`,
	} {
		eventually(t, "requests are dispatched with "+want, func() (bool, string) {
			metrics, err := api.Discovery().RESTClient().Get().AbsPath("/metrics").Do(context.Background()).Raw()
			if err != nil {
				return false, err.Error()
			}
			var seen []string
			for lines := bufio.NewScanner(strings.NewReader(string(metrics))); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "apiserver_flowcontrol_dispatched_requests_total{") {
					seen = append(seen, lines.Text())
				}
			}
			all := strings.Join(seen, "\n")
			return strings.Contains(all, want), all
		})
	}
}
