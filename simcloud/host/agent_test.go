package host

import (
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
)

// TestAgentHandlesUpdateRequest also checks that the agent ignores requests with a result.
func TestAgentHandlesUpdateRequest(t *testing.T) {
	const requestKey = updateRequested
	for name, test := range map[string]struct {
		annotations map[string]string
		noAgent     bool
		version     string // version of the kubelet after the call
		answer      string
	}{
		"new version":                    {map[string]string{requestKey: "v1.37.0"}, false, "v1.37.0", "succeeded"},
		"requests the installed version": {map[string]string{requestKey: "v1.36.3"}, false, "v1.36.3", "succeeded"},
		"request already has an answer": {map[string]string{requestKey: "v1.37.0", updateResult: "failed"}, false,
			"v1.36.3", ""},
		"invalid version": {map[string]string{requestKey: "latest"}, false, "v1.36.3",
			`failed: version "latest" must have the form v1.2.3`},
		"update fails": {map[string]string{requestKey: "v1.37.0", simcloud.AnnotationUpdateFails: "no space"}, false,
			"v1.36.3", "failed: no space"},
		"no request":             {nil, false, "v1.36.3", ""},
		"image without an agent": {map[string]string{requestKey: "v1.37.0"}, true, "v1.36.3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
				ObjectMeta: metav1.ObjectMeta{Name: "h", UID: "u", Annotations: test.annotations}}
			var patches []map[string]string
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch && !strings.HasSuffix(r.URL.Path, "/status") {
					body, _ := io.ReadAll(r.Body)
					if err := json.Unmarshal(body, &patches); err != nil {
						t.Error(err)
					}
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(node)
			}))
			t.Cleanup(server.Close)
			pool := x509.NewCertPool()
			pool.AddCert(server.Certificate())
			s := &fakeReporter{}
			spec := specFor(server)
			spec.Image.NodeAgent = !test.noAgent
			m := &machine{spec: spec, reporter: s, clock: clock.RealClock{}, boot: &bootstrap{server: server.URL, token: "t",
				version: "v1.36.3"}}
			var err error
			if m.conn, err = connect(m.boot, pool, nil); err != nil {
				t.Fatal(err)
			}
			defer m.conn.close()
			if err := m.handleUpdateRequest(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			answer := ""
			if len(patches) == 2 && patches[0]["op"] == "test" && patches[0]["value"] == test.annotations[requestKey] {
				answer = patches[1]["value"]
			}
			if answer != test.answer || m.boot.version != test.version {
				t.Errorf("answer %q (patches %v), version %s", answer, patches, m.boot.version)
			}
			if installed := s.disk.KubeletVersion; (installed != "") != (test.version != "v1.36.3") {
				t.Errorf("the disk has kubelet version %q", installed)
			}
			spec.Disk = s.disk
			if boot, _, err := parseBootstrap(spec); err != nil || versionOnDisk(s.disk) != boot.version {
				t.Errorf("after a restart: %+v, %v", boot, err)
			}
		})
	}
}

func versionOnDisk(d Disk) string {
	if d.KubeletVersion != "" {
		return d.KubeletVersion
	}
	return defaultKubeletVersion
}
