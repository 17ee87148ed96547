//go:build e2e

package e2e

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
)

// leaseLink stands between one process and the API server. When it is cut, requests about Leases get no answer any
// more, and all others do: the process has nothing but its own clock to know that its Lease has run out.
type leaseLink struct{ cut chan struct{} }

// stand returns what leads a process to the link instead of to the API server.
func (l *leaseLink) stand(t *testing.T, config *rest.Config) *rest.Config {
	t.Helper()
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // Processes that end cancel their requests.
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/leases/") {
			select {
			case <-l.cut:
				<-r.Context().Done()
				return
			default:
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// The leaders of a shard are frozen for longer than their leases, and have work to do when they resume. By then nobody
// answers what they ask about Leases.
//
// Rules: shard-has-one-owner, lease-counts-from-send.
func TestAFrozenShardDoesNotActWhenItResumes(t *testing.T) {
	onlyInFull(t, "TestAFrozenLeaderDoesNotActWhenItResumes")
	t.Parallel()
	d := startDivided(t)
	d.links = map[string]*leaseLink{}
	leaders, _ := d.pairs()
	d.fleets(2)
	d.settled(d.namespaces, 2)
	d.scaleAll(6)
	d.midst(d.of(first), 2, 6)
	var leases []*coordinationv1.Lease
	for _, program := range programs {
		leases = append(leases, d.lease(leaders[program][0]))
		signal(t, leaders[program][0].Process, syscall.SIGSTOP)
	}
	for _, lease := range leases {
		d.awaitHandover(lease)
	}
	d.settled(d.namespaces, 6)
	d.scaleAll(8)
	for _, program := range programs {
		close(d.links[leaders[program][0].Name].cut)
	}
	resumed := time.Now()
	for _, program := range programs {
		signal(t, leaders[program][0].Process, syscall.SIGCONT)
	}
	for _, program := range programs {
		mustEndFenced(t, leaders[program][0].Process)
		t.Logf("%s had ended %s after it resumed", leaders[program][0].Name, time.Since(resumed))
	}
	d.settled(d.namespaces, 8)
	d.oneOwner(resumed)
	for _, program := range programs {
		frozen := leaders[program][0]
		if n := len(d.writes(program).by(frozen)); n == 0 {
			t.Errorf("%s never wrote anything", frozen.Name)
		}
		n := len(d.writes(program).by(frozen).between(resumed, time.Now()))
		t.Logf("%s sent %d writes after it resumed", frozen.Name, n)
		if n > workers {
			t.Errorf("%s sent %d writes after it resumed; only the %d whose check was before it froze may still go out",
				frozen.Name, n, workers)
		}
		if n := len(d.renewals(frozen).between(resumed, time.Now())); n > 0 {
			t.Errorf("%s renewed its lease %d times after another process had acquired it", frozen.Name, n)
		}
	}
	d.exact(8)
	d.empty()
}
