//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/guide"
)

// The commands that `machinist-demo --bare` prints must work in a shell, with separate clusters.
//
// Rule: metrics-need-authorization.
func TestCommandsOfBareDemoWork(t *testing.T) {
	t.Parallel()
	bare := guide.Start(t, "", filepath.Join(binDir(t), "machinist-demo")+" --bare --separate-target --dir "+
		filepath.Join(t.TempDir(), "bare"))
	text := bare.WaitFor("Ctrl-C ends everything", env.Patience)

	commands := regexp.MustCompile(`(?s)  (/\S*bin/machinist-(?:manager|provider-sim) .*?)\n\n`).FindAllStringSubmatch(text, -1)
	if len(commands) != 2 {
		t.Fatalf("the demo printed %d commands, want those of the manager and the provider:\n%s", len(commands), text)
	}
	health, metrics := []string{freeAddress(t), freeAddress(t)}, []string{freeAddress(t), freeAddress(t)}
	var processes []*guide.Program
	for i, c := range commands {
		// The checks below need the addresses in these flags.
		processes = append(processes,
			guide.Start(t, "", fmt.Sprintf("exec %s --health-probe-bind-address=%s --metrics-bind-address=%s --metrics-secure",
				c[1], health[i], metrics[i])))
	}

	_, fleet, _ := strings.Cut(text, "Then create a fleet, in the folder of the repository:")
	fleet, rest, _ := strings.Cut(fleet, "\n\nThe nodes are in the target cluster: ")
	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindStringSubmatch(fleet)[1]
	c := clientFor(t, kubeconfig)
	// By default, a bash script does not expand aliases.
	script := "set -e\nshopt -s expand_aliases\ncd ../..\n" + fleet
	if out, err := exec.Command("bash", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("create the fleet: %v\n%s", err, out)
	}
	env.Await(t, c, &v1beta1.MachineList{}, "three running machines", func(l *v1beta1.MachineList) (bool, string) {
		running := 0
		for i := range l.Items {
			if l.Items[i].Status.Phase == v1beta1.MachineRunning {
				running++
			}
		}
		return running == 3 && len(l.Items) == 3, describe(l.Items)
	})
	listNodes, rest, _ := strings.Cut(rest, "\n")
	if out, err := exec.Command("bash", "-c",
		strings.Split(script, "  kubectl apply")[0]+listNodes).CombinedOutput(); err != nil ||
		strings.Count(string(out), " Ready ") != 3 {
		t.Errorf("%s: got error %v, want three Ready nodes:\n%s", listNodes, err, out)
	}
	if n := strings.Count(rest, ": curl http://127.0.0.1:"); n != 2 {
		t.Errorf("the demo printed %d addresses of metrics, want 2:\n%s", n, rest)
	}
	nodes := &corev1.NodeList{}
	if err := c.List(context.Background(), nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 0 {
		t.Errorf("%d nodes registered in the control cluster", len(nodes.Items))
	}

	newAccount(t, c, "metrics-reader", true)
	token := newToken(t, c, "metrics-reader")
	for i := range processes {
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := get(t, "http://"+health[i]+path, ""); code != http.StatusOK {
				t.Errorf("%s: got status %d, want %d: %s", path, code, http.StatusOK, body)
			}
		}
		if code, _ := get(t, "https://"+metrics[i]+"/metrics", ""); code != http.StatusUnauthorized {
			t.Errorf("/metrics without a token: got status %d, want %d", code, http.StatusUnauthorized)
		}
		if code, body := get(t, "https://"+metrics[i]+"/metrics", token); code != http.StatusOK ||
			!strings.Contains(body, "workqueue_depth") {
			t.Errorf("/metrics with permission: got status %d, want %d with workqueue_depth: %.200s", code, http.StatusOK, body)
		}
	}
	for i, p := range processes {
		begun := time.Now()
		if err := p.Terminate(); err != nil {
			t.Errorf("%s ended with %v:\n%s", commands[i][1], err, p.Output())
		}
		t.Logf("ended %s after SIGTERM", time.Since(begun).Round(10*time.Millisecond))
	}
	leases := &coordinationv1.LeaseList{}
	if err := c.List(context.Background(), leases, client.InNamespace(stack.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			t.Errorf("the Lease %s is still held by %s after a graceful end", l.Name, *l.Spec.HolderIdentity)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func clientFor(t *testing.T, kubeconfig string) client.WithWatch {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := scheme.Scheme
	if err := v1beta1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	// The self-signed certificate cannot be verified. Skipping the verification is safe, because the connection stays
	// on this host.
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout: 10 * time.Second}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := h.Do(req)
	if err != nil {
		t.Errorf("get %s: %v", url, err)
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("read %s: %v", url, err)
	}
	return res.StatusCode, string(body)
}

func kubectlPath(t *testing.T) string {
	t.Helper()
	path, err := controlplane.Locate("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
