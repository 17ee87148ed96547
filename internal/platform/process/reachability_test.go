package process

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
)

func withFrequentChecks(c *Config) *Config {
	c.TargetKubeconfig = planes.target.Kubeconfig()
	c.StatusCheckPeriod, c.StatusCheckTimeout = 100*time.Millisecond, 3*time.Second
	return c
}

// Rules: reachability-by-two-probes, outage-stops-owners, freeze-is-reported.
func TestAProcessDetectsAnOutageOfItsTarget(t *testing.T) {
	o := testOptions()
	p := start(t, withFrequentChecks(testConfig(t)), o, nil)
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "frozen: no")
	watch := p.Reachability()
	eventually(t, func() error {
		if _, stable := watch.StableSince(); !stable {
			return errors.New("StableSince() reports no time although both clusters answer")
		}
		return nil
	})
	stopAPIServer(t, planes.target)
	p.probeReports("/readyz", http.StatusOK, "frozen: The target cluster has been unreachable since ")
	frozen, err := reachability.FrozenMetric(o.Registerer)
	if err != nil {
		t.Fatal(err)
	}
	metric := func(want float64) {
		t.Helper()
		eventually(t, func() error {
			if got := testutil.ToFloat64(frozen.WithLabelValues(v1beta1.ReasonControlPlaneUnreachable)); got != want {
				return fmt.Errorf("machinist_frozen is %v, want %v", got, want)
			}
			return nil
		})
	}
	metric(1)
	if reason, _ := watch.StopReason(); reason != v1beta1.ReasonControlPlaneUnreachable {
		t.Errorf("Stopped() = %q", reason)
	}
	if _, stable := watch.StableSince(); stable {
		t.Error("StableSince() reports a time during an outage")
	}
	startAPIServer(t, planes.target)
	p.probeReports("/readyz", http.StatusOK, "frozen: no")
	metric(0)
	past, _ := watch.TargetOutages()
	if len(past) == 0 {
		t.Error("TargetOutages() lacks the outage")
	}
	since, stable := watch.StableSince()
	if !stable || since.Before(past[len(past)-1].To) {
		t.Errorf("stable %t since %s, want since the end of %v", stable, since, past)
	}
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	noGoroutinesLeft(t)
}

// A process must not treat a cluster as unreachable before the first check. Otherwise the controllers would report a
// freeze at every start.
//
// Rule: reachability-by-two-probes.
func TestAProcessIsNotFrozenWhenItStarts(t *testing.T) {
	for range 3 {
		c := testConfig(t)
		c.TargetKubeconfig = planes.target.Kubeconfig()
		o := testOptions()
		o.Registerer = prometheus.NewRegistry()
		p := start(t, c, o, nil)
		p.elected()
		if reason, message := p.Reachability().StopReason(); reason != "" {
			t.Errorf("Stopped() = %s, %s", reason, message)
		}
		if err := p.stopAndWait(); err != nil {
			t.Errorf("Run() = %v", err)
		}
	}
}
