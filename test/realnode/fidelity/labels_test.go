//go:build e2e && linux

package fidelity

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
)

type firstReport chan simcloud.HostStatus

func (l firstReport) Save(host.Disk) error { return nil }
func (l firstReport) Print(string)         {}
func (l firstReport) Report(s simcloud.HostStatus) {
	select {
	case l <- s:
	default:
	}
}

// The kubelet must refuse to start with labels of Kubernetes that a kubelet must not set.
func TestKubeletRejectsReservedLabels(t *testing.T) {
	kubelet, err := controlplane.Locate("kubelet")
	if err != nil {
		t.Fatal(err)
	}
	c, err := running()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"pool", "example.com/pool", "kubernetes.io/pool", "k8s.io/pool", "my.k8s.io/pool",
		"node-role.kubernetes.io/worker", "node.kubernetes.io/pool", "kubelet.kubernetes.io/pool", "a.node.kubernetes.io/pool",
		"node-restriction.kubernetes.io/pool", "kubernetes.io/hostname", "kubernetes.io/os", "beta.kubernetes.io/arch",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "node.kubernetes.io/instance-type",
		"failure-domain.beta.kubernetes.io/zone", "notkubernetes.io/pool"} {
		t.Run(strings.ReplaceAll(key, "/", " "), func(t *testing.T) {
			t.Parallel()
			// A kubelet that accepts the label exits because the configuration file does not exist.
			output, err := exec.CommandContext(t.Context(), kubelet, "--node-labels="+key+"=x", "--config=/none").CombinedOutput()
			if err == nil {
				t.Fatal("the kubelet exited without an error")
			}
			refused := strings.Contains(string(output), "labels specified with --node-labels")
			if !refused && !strings.Contains(string(output), "/none") {
				t.Fatalf("the kubelet exited for another reason: %s", output)
			}
			s := c.simulated
			s.ID, s.Address = key, netip.MustParseAddr("192.0.2.21")
			s.Hostname = "labels"
			s.UserData = userData(c.endpoint, c.authority, key+"=x")
			first := make(firstReport, 1)
			fleet := host.NewFleet(clock.RealClock{})
			defer fleet.Close()
			fleet.Start(s, first)
			if status := <-first; (status.Phase == simcloud.HostIdle) != refused {
				t.Errorf("the kubelet refuses the label: %t, but the simulated machine reports %+v", refused, status)
			}
		})
	}
}
