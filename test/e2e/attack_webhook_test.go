//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
)

type anonymous struct {
	*http.Client
	url string
}

func (m *machinist) newAnonymous(program string) anonymous {
	m.t.Helper()
	configuration := &admissionv1.ValidatingWebhookConfiguration{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Name: program}, configuration); err != nil {
		m.t.Fatal(err)
	}
	hook := configuration.Webhooks[0].ClientConfig
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hook.CABundle)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	m.t.Cleanup(c.CloseIdleConnections)
	return anonymous{c, *hook.URL}
}

func (a anonymous) send(body io.Reader) (int, string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, body)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := a.Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	cancel() // Otherwise, Close waits for the end of the request body.
	answer.Body.Close()
	return answer.StatusCode, string(text), err
}

func review(t *testing.T, class string) []byte {
	t.Helper()
	machine, err := json.Marshal(&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&admissionreviewv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionreviewv1.AdmissionRequest{UID: "1", Namespace: namespace, Name: "m", Operation: "CREATE",
			Kind:   metav1.GroupVersionKind{Group: v1beta1.GroupName, Version: v1beta1.Version, Kind: "Machine"},
			Object: runtime.RawExtension{Raw: machine}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Any client that can connect to the webhook can send requests to it. Such requests may cause only a few reads from the
// API server, and may use only little memory and processor time. After these requests, the webhook must still serve API
// servers.
//
// Rule: webhook-requests-limited.
func TestAttackWebhookWithoutIdentity(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true})
	attacker := m.newAnonymous(stack.Manager)
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Mark(); err != nil {
		t.Fatal(err)
	}

	// First, send reviews for machines whose classes do not exist.
	begun := time.Now()
	const reviews = 1000
	for i := range reviews {
		if code, text, err := attacker.send(bytes.NewReader(review(t, fmt.Sprintf("unknown-%d", i)))); err != nil ||
			code != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
			t.Fatalf("a review: status %d, error %v, answer %s", code, err, text)
		}
	}
	reads, err := log.Requests(auditlog.Filter{Users: []string{stack.Manager}, Match: func(r auditlog.Request) bool {
		return r.Resource == "machineclasses" && r.Verb == "list"
	}})
	if err != nil {
		t.Fatal(err)
	}
	if most := 50 + 10*(1+int(time.Since(begun)/time.Second)); len(reads) == 0 || len(reads) > most {
		t.Errorf("%d reviews caused %d reads at the API server, want some, and at most %d", reviews, len(reads), most)
	}

	// Then send many large bodies at the same time.
	large := bytes.Repeat([]byte(" "), 7<<20-1)
	var all sync.WaitGroup
	codes := make(chan int, 40)
	for range cap(codes) {
		all.Go(func() {
			code, _, err := attacker.send(bytes.NewReader(large))
			if err != nil { // The server closes the stream while the client still writes.
				code = http.StatusRequestEntityTooLarge
			}
			codes <- code
		})
	}
	all.Wait()
	close(codes)
	for code := range codes {
		if code != http.StatusRequestEntityTooLarge && code != http.StatusTooManyRequests {
			t.Errorf("a body of 7 MiB: status %d", code)
		}
	}

	// Finally, send bodies that never end. The webhook must refuse further requests immediately and end each request
	// soon.
	body, rest := io.Pipe()
	defer rest.Close()
	begun = time.Now()
	slow := make(chan int, 700)
	for range cap(slow) {
		all.Go(func() {
			code, _, err := attacker.send(io.MultiReader(strings.NewReader("{"), body))
			if err != nil {
				code = http.StatusRequestTimeout
			}
			slow <- code
		})
	}
	all.Wait()
	close(slow)
	counts := map[int]int{}
	for code := range slow {
		counts[code]++
	}
	if took := time.Since(begun); counts[http.StatusTooManyRequests] == 0 || counts[http.StatusOK] > 0 ||
		took > 30*time.Second {
		t.Errorf("bodies that never end: status codes %v after %s; want some 429, no 200, and the end within seconds", counts,
			took)
	}

	refused := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "invalid"},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "missing"}}}
	refused.Spec.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x"}
	eventually(t, "the webhook serves the API server", func() (bool, string) {
		err := m.control.Create(context.Background(), refused.DeepCopy(), client.DryRunAll)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.node.labels"), errorText(err)
	})
}

// If --webhook-client-ca-file is set, the webhook must serve only clients that present a certificate of this authority,
// such as the API server.
//
// Rule: webhook-requests-limited.
func TestAttackWebhookWithoutClientCertificate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	maker := &rotator.CertRotator{CAName: "webhook-clients", DNSName: "kube-apiserver",
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	authority, err := maker.CreateCACert(begin, end)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := maker.CreateCertPEM(authority, begin, end)
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(folder, name) }
	plugin := func(name string) string {
		return fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, "+
			"kubeConfigFile: %s}\n", name, path("clients.kubeconfig"))
	}
	for name, text := range map[string]string{
		"ca.crt": string(authority.CertPEM), "tls.crt": string(cert), "tls.key": string(key),
		"clients.kubeconfig": fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n"+
			"  user: {client-certificate: %s, client-key: %s}\n", path("tls.crt"), path("tls.key")),
		"admission.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" +
			plugin("ValidatingAdmissionWebhook") + plugin("MutatingAdmissionWebhook"),
	} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--webhook-client-ca-file=" + path("ca.crt")}
	// The stack starts only after both webhooks have refused an invalid object. So the API server can reach both
	// webhooks.
	m := start(t, stack.Options{NoTarget: true, ManagerArgs: flags, ProviderArgs: slices.Clone(flags),
		ExtraAPIServerArgs: []string{"--admission-control-config-file=" + path("admission.yaml")}})
	for _, program := range []string{stack.Manager, stack.Provider} {
		code, text, err := m.newAnonymous(program).send(bytes.NewReader(review(t, "missing")))
		if err != nil || code != http.StatusUnauthorized || strings.Contains(text, "allowed") {
			t.Errorf("%s: status %d, error %v, answer %q; want %d", program, code, err, text, http.StatusUnauthorized)
		}
	}
}
