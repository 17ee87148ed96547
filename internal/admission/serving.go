package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/internal/admission/certificate"
	"machinist.dev/machinist/internal/platform/expiry"
)

// Path is where both kinds of process serve their webhook, and MutatingPath where the manager serves the other one.
const (
	Path         = "/validate"
	MutatingPath = "/mutate"
)

// Serving is how a process serves its webhook. Its name is that of the process: of its Service, of the
// webhook configurations, and, with -webhook behind it, of the Secret with the certificate.
type Serving struct {
	// BindAddress is where it listens, such as ":9443"; "" and "0" serve no webhook.
	BindAddress string
	// Hosts are the DNS names by which API servers reach it. Default: <name>.<namespace>.svc.
	Hosts []string
	// CertDir holds tls.crt and tls.key, which somebody else keeps, such as cert-manager. Empty means a certificate that
	// the process keeps itself.
	CertDir string

	keeper *certificate.Keeper
}

// AddFlags registers the flags.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.BindAddress, "webhook-bind-address", "0",
		"address on which the admission webhook is served, such as :9443; 0 serves none")
	fs.StringSliceVar(&s.Hosts, "webhook-hosts", nil,
		"DNS names or IP addresses by which API servers reach the webhook; default: that of its Service, <process>.<namespace of the lease>.svc")
	fs.StringVar(&s.CertDir, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key for the webhook, if others keep them, such as cert-manager; by default the process keeps a certificate in a Secret and the caBundle in the webhook configuration")
}

// Off reports whether no webhook is served.
func (s *Serving) Off() bool { return s.BindAddress == "" || s.BindAddress == "0" }

// Validate returns an error that names each flag whose value cannot be used.
func (s *Serving) Validate() error {
	if s.Off() {
		return nil
	}
	var errs []error
	if _, _, err := s.address(); err != nil {
		errs = append(errs, err)
	}
	for _, host := range s.Hosts {
		if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 && net.ParseIP(host) == nil {
			errs = append(errs, fmt.Errorf("--webhook-hosts has %q: %s", host, strings.Join(problems, "; ")))
		}
	}
	if s.CertDir != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(s.CertDir, "tls.crt"),
			filepath.Join(s.CertDir, "tls.key")); err != nil {
			errs = append(errs, fmt.Errorf("--webhook-cert-dir is %q: %w", s.CertDir, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Serving) address() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s.BindAddress)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("--webhook-bind-address is %q; it must be an address such as :9443, or 0", s.BindAddress)
	}
	return host, port, nil
}

// Server returns the server for a manager; nil when no webhook is served.
func (s *Serving) Server() (webhook.Server, error) {
	if s.Off() {
		return nil, nil
	}
	host, port, err := s.address()
	if err != nil {
		return nil, err
	}
	return &server{leave: leaveTime, Server: webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: s.CertDir,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			if s.keeper != nil {
				c.GetCertificate = s.keeper.GetCertificate
			}
		}}})}, nil
}

// Process is what Serving needs to know of the process that serves.
type Process struct {
	Name string
	// Namespace is where its Secret is.
	Namespace string
	// Only is the one namespace that the process checks; "" is all.
	Only    string
	Manager manager.Manager
	// Mutating serves the mutating webhook; nil for none.
	Mutating admission.Handler
	// Writer writes to the control cluster for the leader only.
	Writer client.Client
	Log    logr.Logger
}

// Serve adds the webhook to a process whose manager has the server of Serving. Without one it does nothing. From the
// end of ctx on, API servers are sent away from this process, which answers anyway until it has ended.
func (s *Serving) Serve(ctx context.Context, p Process, handler admission.Handler) error {
	if s.Off() {
		return nil
	}
	if s.CertDir == "" && p.Only != "" {
		return errors.New("--webhook-cert-dir is required with --namespace: the process has no right to the webhook configuration, which is cluster-wide, so it cannot keep a certificate itself")
	}
	serving := p.Manager.GetWebhookServer()
	if own, ok := serving.(*server); ok {
		own.leaveAfter(ctx)
	}
	serving.Register(Path, &webhook.Admission{Handler: within(p.Only, handler)})
	if p.Mutating != nil {
		serving.Register(MutatingPath, &webhook.Admission{Handler: within(p.Only, p.Mutating)})
	}
	ready := serving.StartedChecker()
	lifetime := func() expiry.Lifetime { return expiry.OfCertificateFile(filepath.Join(s.CertDir, "tls.crt")) }
	if s.CertDir == "" {
		hosts := s.Hosts
		if len(hosts) == 0 {
			hosts = []string{p.Name + "." + p.Namespace + ".svc"}
		}
		s.keeper = certificate.New(certificate.Options{
			Secret:        client.ObjectKey{Namespace: p.Namespace, Name: p.Name + "-webhook"},
			Configuration: p.Name, Mutating: p.Mutating != nil, Hosts: hosts,
			Writer: p.Writer, Clock: clock.RealClock{}, Log: p.Log.WithName("webhook-certificate"),
		})
		if err := s.keeper.Register(p.Manager); err != nil {
			return fmt.Errorf("keep the certificate of the webhook: %w", err)
		}
		lifetime = s.keeper.Lifetime
		started := ready
		ready = func(r *http.Request) error {
			if err := s.keeper.Ready(r); err != nil {
				return err
			}
			return started(r)
		}
	}
	expiries, err := expiry.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	expiries.Watch("webhook-certificate", lifetime)
	return p.Manager.AddReadyzCheck("webhook", ready)
}

// within admits what is in another namespace than the one that the process checks, if there is one: it knows nothing
// of it.
func within(namespace string, handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		if namespace != "" && r.Namespace != namespace {
			return admission.Allowed("")
		}
		return handler.Handle(ctx, r)
	})
}
