package host

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
)

type fakeReporter struct {
	mu      sync.Mutex
	lines   []string
	status  simcloud.HostStatus
	disk    Disk
	diskErr error
}

func (s *fakeReporter) Save(d Disk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.diskErr == nil {
		s.disk = d
	}
	return s.diskErr
}

func (s *fakeReporter) Report(status simcloud.HostStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (s *fakeReporter) Print(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *fakeReporter) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func (s *fakeReporter) waitFor(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(s.text(), text) {
		select {
		case <-deadline:
			t.Fatalf("the console has no %q:\n%s", text, s.text())
		case <-tick.C:
		}
	}
}

func specFor(server *httptest.Server) Spec {
	config := strings.ReplaceAll(kubeconfig("", ""), "https://127.0.0.1:6443", server.URL)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	var b strings.Builder
	for line := range strings.Lines(config) {
		if strings.Contains(line, "certificate-authority-data") {
			data, _ := json.Marshal(ca) // JSON encodes the bytes in base64.
			line = "    certificate-authority-data: " + string(data) + "\n"
		}
		b.WriteString(line)
	}
	return Spec{
		ID: "i-1", Hostname: "h", ProviderID: "sim://r/z/i-1", Region: "r", Zone: "z",
		Type: simcloud.InstanceType{Name: "small", Architecture: "amd64", CPUs: 1, MemoryMiB: 1024,
			EphemeralStorageGiB: 10},
		Address: netip.MustParseAddr("10.0.0.1"), PodNet: netip.MustParsePrefix("100.64.0.0/24"),
		UserData: cloudConfig(pathKubeconfig, b.String()),
	}
}

func powerOn(t *testing.T, spec Spec, s *fakeReporter) *Fleet {
	t.Helper()
	fleet := NewFleet(clock.RealClock{})
	t.Cleanup(fleet.Close)
	fleet.Start(spec, s)
	return fleet
}

func TestStopClosesConnections(t *testing.T) {
	arrived, closed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// Read to the end, because the server would otherwise miss the end of the connection.
		_, _ = io.Copy(io.Discard, r.Body)
		once.Do(func() { close(arrived) })
		<-r.Context().Done()
		close(closed)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	fleet := powerOn(t, specFor(server), &fakeReporter{})
	<-arrived
	fleet.Stop("i-1")
	<-closed
}

// TestRedirectsAreNotFollowed checks that the token never reaches a server other than the server in the user data.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("redirected, with Authorization %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	s := &fakeReporter{}
	powerOn(t, specFor(server), s)
	s.waitFor(t, "next attempt in")
}

func TestInvalidServerResponses(t *testing.T) {
	for name, answer := range map[string]string{
		"text":                       "hello",
		"another kind of object":     `{"apiVersion":"v1","kind":"Pod"}`,
		"an empty object":            `{}`,
		"an invalid certificate":     `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"x"},"status":{"certificate":"Z2FyYmFnZQ=="}}`,
		"a Status without a message": `{"apiVersion":"v1","kind":"Status","status":"Failure"}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
			}))
			t.Cleanup(server.Close)
			s := &fakeReporter{}
			powerOn(t, specFor(server), s)
			s.waitFor(t, "next attempt in")
			if s.text() == "" || strings.Contains(s.text(), "registered") {
				t.Error(s.text())
			}
		})
	}
}

// TestRestartSendsNewCertificateRequest stops a kubelet that has no certificate yet. After the restart, it must send a
// request with a new key.
func TestRestartSendsNewCertificateRequest(t *testing.T) {
	requests := make(chan *certificatesv1.CertificateSigningRequest, 2)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			<-r.Context().Done()
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, csr); err != nil {
			t.Error(err)
		}
		requests <- csr.DeepCopy()
		csr.Name = csr.GenerateName + "x"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		csr.APIVersion, csr.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
		if err := json.NewEncoder(w).Encode(csr); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	s := &fakeReporter{}
	spec := specFor(server)
	fleet := powerOn(t, spec, s)
	first := <-requests
	s.waitFor(t, "waiting for approval of CertificateSigningRequest csr-x")
	fleet.Stop(spec.ID)
	spec.Disk = s.disk
	fleet.Start(spec, s)
	second := <-requests
	if first.GenerateName != "csr-" || second.GenerateName != "csr-" || first.Name != "" ||
		bytes.Equal(first.Spec.Request, second.Spec.Request) {
		t.Errorf("first request %+v, second %+v", first, second)
	}
}

func TestUnusableCertificateIsReplaced(t *testing.T) {
	for name, disk := range map[string]Disk{
		"damaged": {KeyPEM: []byte("x"), CertificatePEM: []byte("y")},
		"no key":  {CertificatePEM: testCA()},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan string, 100)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests <- r.Method + " " + r.URL.Path
				w.WriteHeader(http.StatusUnauthorized)
			}))
			t.Cleanup(server.Close)
			spec := specFor(server)
			spec.Disk = disk
			s := &fakeReporter{}
			powerOn(t, spec, s)
			if got := <-requests; got != "POST /apis/certificates.k8s.io/v1/certificatesigningrequests" {
				t.Errorf("first request: %s", got)
			}
			s.waitFor(t, "HTTP 401 Unauthorized")
			s.waitFor(t, "cannot use the saved node certificate")
		})
	}
}

func TestMachinesShareCertPool(t *testing.T) {
	r := &NewFleet(clock.RealClock{}).roots
	first, second := r.pool(testCA()), r.pool(testCA())
	if first != second {
		t.Error("two pools for one authority")
	}
}

func TestRegistrationKeepsForeignFields(t *testing.T) {
	m := &machine{
		spec: Spec{ID: "i-1", Hostname: "h", ProviderID: "sim://r/z/i-1", Region: "r", Zone: "z",
			Address: netip.MustParseAddr("10.0.0.1"),
			Type: simcloud.InstanceType{Name: "small", Architecture: "amd64", CPUs: 1, MemoryMiB: 1024,
				EphemeralStorageGiB: 10}},
		boot: &bootstrap{version: "v1.36.3", labels: map[string]string{"pool": "blue"},
			taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}},
	}
	existing := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "h", Labels: map[string]string{"others": "1",
			corev1.LabelInstanceTypeStable: "gpu"}, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.NodeSpec{ProviderID: "other", Unschedulable: true},
	}
	m.registrationDone = true
	old := m.node(dawn)
	existing.Status = old.Status
	existing.Status.Capacity[resourceGPU] = existing.Status.Capacity[corev1.ResourceCPU]
	existing.Status.Capacity["example.com/thing"] = existing.Status.Capacity[corev1.ResourceCPU]
	existing.Status.Conditions = append([]corev1.NodeCondition{{Type: "KernelDeadlock", Status: corev1.ConditionTrue}},
		existing.Status.Conditions...)
	for i := range existing.Status.Conditions {
		if existing.Status.Conditions[i].Type == corev1.NodeReady {
			existing.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
	}
	now := dawn.Add(time.Hour)
	patch, err := difference(existing, updatedNode(existing, m.node(now), true, false))
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(existing)
	if err != nil {
		t.Fatal(err)
	}
	data, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Node
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	// Node labels in the user data apply only when the machine creates the Node.
	if got.Labels["others"] != "1" || got.Labels["pool"] != "" || got.Labels[corev1.LabelOSStable] != "linux" ||
		got.Labels[corev1.LabelInstanceTypeStable] != "gpu" ||
		got.Annotations["a"] != "b" || got.Spec.ProviderID != "other" || !got.Spec.Unschedulable ||
		len(got.Spec.Taints) != 0 {
		t.Errorf("got %+v", got)
	}
	if gpus := got.Status.Capacity[resourceGPU]; !gpus.IsZero() {
		t.Error("the Node still has the GPU of the old instance type")
	}
	if things := got.Status.Capacity["example.com/thing"]; things.Value() != 1 {
		t.Error("the capacity example.com/thing, which another component set, is lost")
	}
	var conditions []string
	for _, c := range got.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s@%s", c.Type, c.Status, c.LastTransitionTime.Sub(dawn)))
	}
	if all := strings.Join(conditions, " "); !strings.Contains(all, "KernelDeadlock=True") ||
		!strings.Contains(all, "Ready=True@1h0m0s") || !strings.Contains(all, "MemoryPressure=False@0s") {
		t.Errorf("conditions: %s", all)
	}
	again := updatedNode(&got, m.node(now.Add(time.Minute)), false, false)
	if !equality.Semantic.DeepEqual(got.Status, again.Status) {
		t.Error("an up-to-date Node is changed again")
	}
	if report := updatedNode(&got, m.node(now.Add(time.Minute)), false, true); equality.Semantic.DeepEqual(got.Status,
		report.Status) {
		t.Error("the heartbeat is not reported")
	}
	if strings.Contains(string(patch), "spec") {
		t.Errorf("the patch changes the spec: %s", patch)
	}
}

func TestNodeReadyDelay(t *testing.T) {
	m := &machine{spec: Spec{Settings: simcloud.HostSettings{NodeReadyDelay: simcloud.Duration(time.Minute)}},
		boot: &bootstrap{}, registrationTime: dawn, registrationDone: true}
	for after, want := range map[time.Duration]corev1.ConditionStatus{0: corev1.ConditionFalse,
		59 * time.Second: corev1.ConditionFalse, time.Minute: corev1.ConditionTrue} {
		node := m.node(dawn.Add(after))
		if got := node.Status.Conditions[len(node.Status.Conditions)-1]; got.Type != corev1.NodeReady || got.Status != want {
			t.Errorf("after %s: %+v", after, got)
		}
	}
}
