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
	// settings are those of both kubelets: they are often heard of, so that nobody waits for long.
	settings = "rotateCertificates: true\nregisterWithTaints: [{key: example.com/new, effect: NoSchedule}]\n" +
		"nodeLeaseDurationSeconds: 8\nnodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 5m\n"
	labels = "example.com/pool=a,node.kubernetes.io/kind=b"
)

// cluster is that of this test binary, with its two nodes.
type cluster struct {
	client.Client
	record record
	audit  *auditlog.Log
	nodes  []node
	// simulated is the second of them, endpoint and authority are those of the API server.
	simulated host.Spec
	endpoint  string
	authority []byte
}

// node is one of the two.
type node struct {
	name    string
	restart func() error
}

// running starts the cluster at the first call. It ends with the process.
var running = sync.OnceValues(func() (*cluster, error) {
	c := &cluster{record: record{changed: make(chan struct{})}}
	cp := controlplane.Options{ApproveNodeClientCSRs: true, Audit: true,
		Prepare: func(_ context.Context, config *rest.Config) error {
			return c.record.follow(context.Background(), config)
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

// simulated is a machine of the simulated cloud.
type simulated struct {
	spec  host.Spec
	fleet *host.Fleet
}

// start switches it on, or off and on again.
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

// spec is a machine that joins as the real kubelet does. Nobody plays a cloud controller manager, as nobody does for
// the real one.
func spec(cp *controlplane.ControlPlane) host.Spec {
	return host.Spec{ID: "i-1", Hostname: "simulated", ProviderID: "sim://r/z/i-1", Region: "r", Zone: "z", Boots: 1,
		Image: simcloud.Image{Name: "debian-12"}, Type: simcloud.InstanceType{Name: "small", Architecture: "amd64", CPUs: 2,
			MemoryMiB: 4096, EphemeralStorageGiB: 20},
		Address: netip.MustParseAddr("192.0.2.20"), PodNet: netip.MustParsePrefix("100.64.0.0/24"),
		UserData: userData(cp.Endpoint(), cp.CA(), labels),
		Settings: simcloud.HostSettings{NoCloudController: true, PodStartTime: simcloud.Duration(500 * time.Millisecond),
			PodStopTime: simcloud.Duration(100 * time.Millisecond)}}
}

// userData has a machine join as a kubelet with some labels.
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

// compare does the same to both nodes at a time, and compares what they show.
func compare(t *testing.T, story func(*testing.T, *cluster, node) []string) {
	t.Helper()
	t.Parallel()
	alone(t, story)
}

// alone compares while no other test does anything to the nodes.
func alone(t *testing.T, story func(*testing.T, *cluster, node) []string) {
	t.Helper()
	c, err := running()
	if err != nil {
		t.Fatal(err)
	}
	shown := make([][]string, len(c.nodes))
	t.Run("both", func(t *testing.T) {
		for i, n := range c.nodes {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				for _, text := range story(t, c, n) {
					shown[i] = append(shown[i], strings.ReplaceAll(text, n.name, "NODE"))
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%s", strings.Join(shown[0], "\n"))
	if diff := cmp.Diff(shown[0], shown[1]); diff != "" {
		t.Errorf("they differ (-real +double):\n%s", diff)
	}
}
