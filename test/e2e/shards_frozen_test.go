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

// A leaseLink is a proxy between a process and the API server. When the proxy is cut, requests about Leases get no
// response. The process can then detect the expiration of its Lease only with its own clock.
type leaseLink struct{ cut chan struct{} }

func (l *leaseLink) serve(t *testing.T, config *rest.Config) *rest.Config {
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
		ErrorLog: log.New(io.Discard, "", 0), // Ending processes cancel their requests.
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

// The leaders of a shard are frozen for longer than their lease duration. After the leaders resume, they have pending
// work, but their requests about Leases get no response.
//
// Rules: shard-has-one-owner, lease-counts-from-send.
func TestFrozenShardDoesNotActAfterResume(t *testing.T) {
	onlyInFull(t, "TestFrozenLeaderDoesNotActAfterResume")
	t.Parallel()
	d := startSharded(t)
	d.links = map[string]*leaseLink{}
	leaders, _ := d.startPairs()
	d.createFleets(2)
	d.awaitRunningIn(d.namespaces, 2)
	d.scaleAll(6)
	d.awaitPartialScaleUp(d.namespacesOf(first), 2, 6)
	var leases []*coordinationv1.Lease
	for _, program := range programs {
		leases = append(leases, d.lease(leaders[program][0]))
		signal(t, leaders[program][0].Process, syscall.SIGSTOP)
	}
	for _, lease := range leases {
		d.awaitHandover(lease)
	}
	d.awaitRunningIn(d.namespaces, 6)
	d.scaleAll(8)
	for _, program := range programs {
		close(d.links[leaders[program][0].Name].cut)
	}
	resumed := time.Now()
	for _, program := range programs {
		signal(t, leaders[program][0].Process, syscall.SIGCONT)
	}
	for _, program := range programs {
		awaitFencedExit(t, leaders[program][0].Process)
		t.Logf("%s ended %s after it resumed", leaders[program][0].Name, time.Since(resumed))
	}
	d.awaitRunningIn(d.namespaces, 8)
	d.wantOneOwner(resumed)
	for _, program := range programs {
		frozen := leaders[program][0]
		if n := len(d.writes(program).ofMembers(frozen)); n == 0 {
			t.Errorf("got no writes of %s, want some before the freeze", frozen.Name)
		}
		n := len(d.writes(program).ofMembers(frozen).receivedBetween(resumed, time.Now()))
		t.Logf("%s sent %d writes after it resumed", frozen.Name, n)
		if n > workers {
			t.Errorf("got %d writes of %s after it resumed, want at most the %d that had passed the fence before", n, frozen.Name,
				workers)
		}
		if n := len(d.renewals(frozen).receivedBetween(resumed, time.Now())); n > 0 {
			t.Errorf("%s renewed its Lease %d times after another process had acquired the Lease", frozen.Name, n)
		}
	}
	d.wantInstancesPerNamespace(8)
	d.scaleToZero()
}
