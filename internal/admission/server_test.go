package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"github.com/spf13/pflag"
)

func certificates(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	maker := &rotator.CertRotator{CAName: "test", DNSName: "localhost",
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	authority, err := maker.CreateCACert(begin, end)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := maker.CreateCertPEM(authority, begin, end)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func parsed(t *testing.T, args ...string) *ServingOptions {
	t.Helper()
	s, fs := &ServingOptions{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve starts a server with a limit of three connections in a simulated process. The function ask sends a request and
// reports whether the connection was reused. The function report asks the process to stop, and endWork ends the work of
// the process. The channel ended receives the error of the server.
func serve(t *testing.T, leave time.Duration) (address string, ask func() (reused bool, err error),
	report, endWork func(), ended <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	listener.Close()
	serving, err := parsed(t, "--webhook-bind-address="+address, "--webhook-cert-dir="+certificates(t)).Server()
	if err != nil {
		t.Fatal(err)
	}
	s := serving.(*server)
	reported, report := context.WithCancel(t.Context())
	s.leaveAfter(reported)
	s.leave, s.connections = leave, 3
	s.Register("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	work, endWork := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Start(work) }()

	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask = func() (reused bool, err error) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			reused = i.Reused
		}})
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/", strings.NewReader("{}"))
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "HTTP/2.0" {
			return false, fmt.Errorf("answered %q, %w", body, err)
		}
		return reused, nil
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, err := ask(); err != nil; _, err = ask() {
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
	return address, ask, report, endWork, end
}

// Rule: no-request-lost-in-renewal.
func TestServerAnswersWhileItsProcessEnds(t *testing.T) {
	_, ask, report, endWork, ended := serve(t, time.Millisecond)
	if reused, err := ask(); err != nil || !reused {
		t.Fatalf("before the end: same connection=%v, %v", reused, err)
	}
	report()
	if _, err := ask(); err != nil {
		t.Fatalf("last request on the connection: %v", err)
	}
	for range 3 {
		if reused, err := ask(); err != nil || reused {
			t.Errorf("while the process ends: same connection=%v, %v", reused, err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the server ended while there was work: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if _, err := ask(); err != nil {
		t.Errorf("while work ends: %v", err)
	}
	endWork()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// Rule: no-request-lost-in-renewal.
func TestServerWithoutWorkWaitsBeforeItEnds(t *testing.T) {
	const leave = 3 * time.Second
	_, ask, report, endWork, ended := serve(t, leave)
	begun := time.Now()
	endWork()
	report()
	if _, err := ask(); err != nil {
		t.Errorf("after the end began: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if took := time.Since(begun); took < leave {
		t.Errorf("the server ended after %s", took)
	}
}

// An attacker opens connections and sends nothing. The connections must not use memory without a limit, nor keep API
// servers out for longer than the timeout of the handshake.
//
// Rule: webhook-requests-limited.
func TestAttackIdleConnectionsToWebhook(t *testing.T) {
	address, ask, report, endWork, ended := serve(t, time.Millisecond)
	for range 2 { // The function ask uses the third connection.
		idle, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	begun := time.Now() // Connections are accepted in the order in which they were opened.
	late, err := tls.DialWithDialer(&net.Dialer{Timeout: 3 * helloTimeout}, "tcp", address,
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatalf("after the handshakes of idle connections timed out: %v", err)
	}
	late.Close()
	if waited := time.Since(begun); waited < helloTimeout/2 {
		t.Errorf("a connection above the limit was accepted after %s", waited)
	}
	if reused, err := ask(); err != nil || !reused {
		t.Errorf("on the first connection: same connection=%v, %v", reused, err)
	}
	report()
	endWork()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestWebhookFlags(t *testing.T) {
	folder := certificates(t)
	for args, want := range map[string]string{
		"":                             "",
		"--webhook-bind-address=0":     "",
		"--webhook-bind-address=:9443": "",
		"--webhook-bind-address=:9443 --webhook-hosts=a.example,localhost": "",
		"--webhook-bind-address=:9443 --webhook-cert-dir=" + folder:        "",
		"--webhook-bind-address=9443":                                      `--webhook-bind-address is "9443"`,
		"--webhook-bind-address=:0":                                        `--webhook-bind-address is ":0"`,
		"--webhook-bind-address=:https":                                    `--webhook-bind-address is ":https"`,
		"--webhook-bind-address=:9443 --webhook-hosts=a_b":                 `--webhook-hosts contains "a_b"`,
		"--webhook-bind-address=:9443 --webhook-cert-dir=" + folder + "/empty": `--webhook-cert-dir is "` +
			folder + `/empty"`,
		"--webhook-bind-address=:9443 --webhook-client-ca-file=" + folder + "/tls.crt": "",
		"--webhook-bind-address=:9443 --webhook-client-ca-file=" + folder + "/empty": `--webhook-client-ca-file is "` +
			folder + `/empty"`,
		"--webhook-bind-address=:9443 --webhook-client-ca-file=" + folder + "/tls.key": "contains no certificate",
		"--webhook-hosts=a_b": "", // There is no webhook.
	} {
		s := parsed(t, strings.Fields(args)...)
		if err := s.Validate(); want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
		if off := !strings.Contains(args, "address=:") && !strings.Contains(args, "address=9"); s.IsDisabled() != off {
			t.Errorf("%q: off=%v", args, s.IsDisabled())
		}
	}
	// A process for one namespace must not write the cluster-wide configuration.
	s := parsed(t, "--webhook-bind-address=:9443")
	err := s.Serve(t.Context(), Process{Name: "p", OnlyNamespace: "team-a"}, nil)
	if err == nil || !strings.Contains(err.Error(), "--webhook-cert-dir is required with --namespace") {
		t.Errorf("for one namespace: %v", err)
	}
}
