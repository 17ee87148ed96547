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
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/internal/admission/certificate"
	"machinist.dev/machinist/internal/platform/expiry"
)

// Path is the path of the validating webhook. MutatingPath is the path of the manager's mutating webhook.
const (
	Path         = "/validate"
	MutatingPath = "/mutate"
)

// ServingOptions configures how a process serves its webhook. The process, its Service and the webhook configurations
// have the same name. The Secret with the certificate has the suffix -webhook.
type ServingOptions struct {
	// BindAddress is the address to listen on, such as ":9443". An empty address or "0" disables the webhook.
	BindAddress string
	// Hosts are the DNS names or IP addresses at which API servers reach the webhook. The default is
	// <name>.<namespace>.svc.
	Hosts []string
	// CertDir is a directory with tls.crt and tls.key, which another program such as cert-manager maintains. If CertDir
	// is empty, the process maintains its own certificate.
	CertDir string
	// ClientCAFile is a PEM file with certificate authorities. Only clients with a certificate of these authorities are
	// served. If ClientCAFile is empty, all clients are served.
	ClientCAFile string

	keeper *certificate.Keeper
}

// AddFlags registers the flags.
func (s *ServingOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.BindAddress, "webhook-bind-address", "0",
		"address on which the admission webhook is served, such as :9443. 0 disables the webhook")
	fs.StringSliceVar(&s.Hosts, "webhook-hosts", nil,
		"DNS names or IP addresses by which API servers reach the webhook. The default is the name of its Service, <process>.<namespace of the Lease>.svc")
	fs.StringVar(&s.CertDir, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key for the webhook that another program maintains, such as cert-manager. By default, the process maintains a certificate in a Secret and the caBundle of the webhook configuration")
	fs.StringVar(&s.ClientCAFile, "webhook-client-ca-file", "",
		"PEM file with the certificate authorities of the client certificates that API servers present to the webhook. Requests without such a certificate are refused. By default, no certificate is required. The file is read again when it changes")
}

// IsDisabled reports whether the flags disable the webhook.
func (s *ServingOptions) IsDisabled() bool { return s.BindAddress == "" || s.BindAddress == "0" }

// Validate returns an error for each invalid flag.
func (s *ServingOptions) Validate() error {
	if s.IsDisabled() {
		return nil
	}
	var errs []error
	if err := s.checkAddress(); err != nil {
		errs = append(errs, err)
	}
	for _, host := range s.Hosts {
		if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 && net.ParseIP(host) == nil {
			errs = append(errs, fmt.Errorf("--webhook-hosts contains %q: %s", host, strings.Join(problems, "; ")))
		}
	}
	if s.CertDir != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(s.CertDir, "tls.crt"),
			filepath.Join(s.CertDir, "tls.key")); err != nil {
			errs = append(errs, fmt.Errorf("--webhook-cert-dir is %q: %w", s.CertDir, err))
		}
	}
	if s.ClientCAFile != "" {
		if _, err := readAuthorities(s.ClientCAFile); err != nil {
			errs = append(errs, fmt.Errorf("--webhook-client-ca-file is %q: %w", s.ClientCAFile, err))
		}
	}
	return errors.Join(errs...)
}

func (s *ServingOptions) checkAddress() error {
	_, text, err := net.SplitHostPort(s.BindAddress)
	if port, invalid := strconv.Atoi(text); err != nil || invalid != nil || port < 1 || port > 65535 {
		return fmt.Errorf("--webhook-bind-address is %q; it must be an address such as :9443, or 0", s.BindAddress)
	}
	return nil
}

// Server returns the webhook server for a manager, or nil if the webhook is disabled.
func (s *ServingOptions) Server() (webhook.Server, error) {
	if s.IsDisabled() {
		return nil, nil
	}
	if err := s.checkAddress(); err != nil {
		return nil, err
	}
	return &server{Server: webhook.NewServer(webhook.Options{}), serving: s, leave: leaveTime,
		connections: maxConnections}, nil
}

// tls returns the configuration of the server. A certificate in a directory is read again when it changes, until ctx
// ends.
func (s *ServingOptions) tls(ctx context.Context) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if s.ClientCAFile != "" {
		verifyClients(c, s.ClientCAFile)
	}
	if s.keeper != nil {
		c.GetCertificate = s.keeper.GetCertificate
		return c, nil
	}
	watcher, err := certwatcher.New(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the webhook: %w", err)
	}
	c.GetCertificate = watcher.GetCertificate
	go func() {
		if err := watcher.Start(ctx); err != nil {
			logf.FromContext(ctx).Error(err, "Cannot watch the certificate of the webhook", "folder", s.CertDir)
		}
	}()
	return c, nil
}

// Process describes the process that serves the webhook.
type Process struct {
	Name string
	// Namespace is the namespace of the process and of its Secret.
	Namespace string
	// OnlyNamespace contains the name of the single namespace that the process serves. An empty string means all
	// namespaces.
	OnlyNamespace string
	Manager       manager.Manager
	// Mutating handles the mutating webhook. If the process has no mutating webhook, Mutating is nil.
	Mutating admission.Handler
	// Writer writes to the control cluster. Only the leader uses it.
	Writer client.Client
	Log    logr.Logger
}

// Serve adds the webhook to a process. The controller-runtime manager of the process must use the webhook server that
// the method Server returns. After ctx ends, the server closes the connections of API servers. Serve answers requests
// until the process ends.
func (s *ServingOptions) Serve(ctx context.Context, p Process, handler admission.Handler) error {
	if s.IsDisabled() {
		return nil
	}
	if s.CertDir == "" && p.OnlyNamespace != "" {
		return errors.New("--webhook-cert-dir is required with --namespace: the webhook configuration is cluster-wide, and the process has no permission to write it, so it cannot maintain a certificate")
	}
	serving := p.Manager.GetWebhookServer()
	if own, ok := serving.(*server); ok {
		own.leaveAfter(ctx)
	}
	limits := newLimits(s.ClientCAFile != "")
	serving.Register(Path, limits.guard(&webhook.Admission{Handler: onlyNamespace(p.OnlyNamespace, handler)}))
	if p.Mutating != nil {
		serving.Register(MutatingPath, limits.guard(&webhook.Admission{Handler: onlyNamespace(p.OnlyNamespace, p.Mutating)}))
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
			return fmt.Errorf("maintain the certificate of the webhook: %w", err)
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

// onlyNamespace validates only the objects in the namespace. onlyNamespace allows all requests for other namespaces,
// because the cache of the process does not contain their objects.
func onlyNamespace(namespace string, handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		if namespace != "" && r.Namespace != namespace {
			return admission.Allowed("")
		}
		return handler.Handle(ctx, r)
	})
}
