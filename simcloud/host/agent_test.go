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

// An agent installs what its Node asks for, for good, and answers only what is still asked.
func TestAnAgentObeysItsNode(t *testing.T) {
	const asks = updateRequested
	for name, test := range map[string]struct {
		annotations map[string]string
		without     bool
		version     string // of the kubelet afterwards
		answer      string
	}{
		"asked":                {map[string]string{asks: "v1.37.0"}, false, "v1.37.0", "succeeded"},
		"asked for what it is": {map[string]string{asks: "v1.36.3"}, false, "v1.36.3", "succeeded"},
		"asked and answered":   {map[string]string{asks: "v1.37.0", updateResult: "failed"}, false, "v1.36.3", ""},
		"asked for nonsense": {map[string]string{asks: "latest"}, false, "v1.36.3",
			`failed: version "latest" is not of the form v1.2.3`},
		"reported to fail": {map[string]string{asks: "v1.37.0", simcloud.AnnotationUpdateFails: "no space"}, false,
			"v1.36.3", "failed: no space"},
		"not asked":                 {nil, false, "v1.36.3", ""},
		"an image without an agent": {map[string]string{asks: "v1.37.0"}, true, "v1.36.3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
				ObjectMeta: metav1.ObjectMeta{Name: "h", UID: "u", Annotations: test.annotations}}
			var answered []map[string]string
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch && !strings.HasSuffix(r.URL.Path, "/status") {
					body, _ := io.ReadAll(r.Body)
					if err := json.Unmarshal(body, &answered); err != nil {
						t.Error(err)
					}
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(node)
			}))
			t.Cleanup(server.Close)
			pool := x509.NewCertPool()
			pool.AddCert(server.Certificate())
			s := &screen{}
			spec := specFor(server)
			spec.Image.NodeAgent = !test.without
			m := &machine{spec: spec, reporter: s, clock: clock.RealClock{}, boot: &bootstrap{server: server.URL, token: "t",
				version: "v1.36.3"}}
			var err error
			if m.conn, err = connect(m.boot, pool, nil); err != nil {
				t.Fatal(err)
			}
			defer m.conn.close()
			if err := m.obey(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			answer := ""
			if len(answered) == 2 && answered[0]["op"] == "test" && answered[0]["value"] == test.annotations[asks] {
				answer = answered[1]["value"]
			}
			if answer != test.answer || m.boot.version != test.version {
				t.Errorf("answer %q (%v), version %s", answer, answered, m.boot.version)
			}
			if installed := s.disk.KubeletVersion; (installed != "") != (test.version != "v1.36.3") {
				t.Errorf("the disk has version %q", installed)
			}
			spec.Disk = s.disk
			if boot, _, err := parseBootstrap(spec); err != nil || installedElse(s.disk) != boot.version {
				t.Errorf("after a restart: %+v, %v", boot, err)
			}
		})
	}
}

func installedElse(d Disk) string {
	if d.KubeletVersion != "" {
		return d.KubeletVersion
	}
	return defaultKubeletVersion
}
