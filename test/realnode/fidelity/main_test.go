//go:build e2e && linux

package fidelity

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/test/realnode"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	realnode.Main(m)
}

const (
	token = "abcdef.0123456789abcdef"
	// settings is the configuration of both kubelets. The kubelet reports its status every second, to make the tests
	// faster.
	settings = "rotateCertificates: true\nregisterWithTaints: [{key: example.com/new, effect: NoSchedule}]\n" +
		"nodeLeaseDurationSeconds: 8\nnodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 5m\n"
	labels = "example.com/pool=a,node.kubernetes.io/kind=b"
)

type cluster struct {
	client.Client
	record    record
	audit     *auditlog.Log
	nodes     []node
	simulated host.Spec
	endpoint  string
	authority []byte
}

type node struct {
	name    string
	restart func() error
}

var running = sync.OnceValues(func() (*cluster, error) {
	c := &cluster{record: record{changed: make(chan struct{})}}
	cp := controlplane.Options{ApproveNodeClientCSRs: true, Audit: true,
		Prepare: func(_ context.Context, config *rest.Config) error {
			return c.record.startRecording(context.Background(), config)
		}}
	real, err := realnode.Start(context.Background(), realnode.Options{ControlPlane: cp, BootstrapToken: token,
		KubeletConfig: settings, KubeletFlags: []string{"--node-labels=" + labels}, Output: os.Stdout})
	if err != nil {
		return nil, err
	}
	if c.Client, err = client.New(real.Config(), client.Options{}); err != nil {
		return nil, err
	}
	if c.audit, err = auditlog.Open(real.AuditLog()); err != nil {
		return nil, err
	}
	fleet := host.NewFleet(clock.RealClock{})
	c.simulated, c.endpoint, c.authority = spec(real.ControlPlane), real.Endpoint(), real.CA()
	machine := &simulated{spec: c.simulated, fleet: fleet}
	if err := machine.start(); err != nil {
		return nil, err
	}
	c.nodes = []node{{realnode.NodeName, real.RestartKubelet}, {machine.spec.Hostname, machine.start}}
	return c, nil
})

type simulated struct {
	spec  host.Spec
	fleet *host.Fleet
}

func (s *simulated) start() error {
	s.fleet.Stop(s.spec.ID)
	s.fleet.Start(s.spec, s)
	return nil
}

func (s *simulated) Save(d host.Disk) error {
	s.spec.Disk = d
	return nil
}

func (s *simulated) Report(simcloud.HostStatus) {}
func (s *simulated) Print(string)               {}

// spec returns the specification of a machine that joins like the real kubelet. Neither node has a cloud controller
// manager.
func spec(cp *controlplane.ControlPlane) host.Spec {
	return host.Spec{ID: "i-1", Hostname: "simulated", ProviderID: "sim://r/z/i-1", Region: "r", Zone: "z", Boots: 1,
		Image: simcloud.Image{Name: "debian-12"}, Type: simcloud.InstanceType{Name: "small", Architecture: "amd64", CPUs: 2,
			MemoryMiB: 4096, EphemeralStorageGiB: 20},
		Address: netip.MustParseAddr("192.0.2.20"), PodNet: netip.MustParsePrefix("100.64.0.0/24"),
		UserData: userData(cp.Endpoint(), cp.CA(), labels),
		Settings: simcloud.HostSettings{NoCloudController: true, PodStartTime: simcloud.Duration(500 * time.Millisecond),
			PodStopTime: simcloud.Duration(100 * time.Millisecond)}}
}

func userData(endpoint string, authority []byte, labels string) []byte {
	kubeconfig := fmt.Sprintf("{kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], "+
		"clusters: [{name: k, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: %s}}]}",
		endpoint, base64.StdEncoding.EncodeToString(authority), token)
	data := "#cloud-config\nwrite_files:\n"
	for path, content := range map[string]string{
		"/etc/kubernetes/bootstrap-kubeconfig": kubeconfig,
		"/var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
			"serverTLSBootstrap: true\n" + settings,
		"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--node-labels=" + labels,
	} {
		data += fmt.Sprintf("- {path: %s, encoding: b64, content: %s}\n", path,
			base64.StdEncoding.EncodeToString([]byte(content)))
	}
	return []byte(data)
}

// compare runs a test for both nodes at the same time, and compares the results. The test runs in parallel with other
// tests.
func compare(t *testing.T, test func(*testing.T, *cluster, node) []string) {
	t.Helper()
	t.Parallel()
	compareAlone(t, test)
}

// compareAlone calls compare while no other test runs. Tests that change the nodes must use compareAlone.
func compareAlone(t *testing.T, test func(*testing.T, *cluster, node) []string) {
	t.Helper()
	c, err := running()
	if err != nil {
		t.Fatal(err)
	}
	results := make([][]string, len(c.nodes))
	t.Run("both", func(t *testing.T) {
		for i, n := range c.nodes {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				for _, text := range test(t, c, n) {
					results[i] = append(results[i], strings.ReplaceAll(text, n.name, "NODE"))
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%s", strings.Join(results[0], "\n"))
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("the nodes differ (-real +simulated):\n%s", diff)
	}
}
