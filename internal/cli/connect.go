package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	_ "time/tzdata" // Windows of disruption budgets have time zones, and not every system has the zone database.

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	_ "machinist.dev/machinist/internal/platform/roots" // The container images contain no root certificates.
)

// Cluster is a client for the API server of the control cluster.
type Cluster struct {
	client.WithWatch
	// Namespace is the value of --namespace, or by default the namespace in the kubeconfig context.
	Namespace string
	server    string
	clock     *serverClock
	config    *rest.Config
	// withoutSecrets disables all reads of Secrets, including their metadata.
	withoutSecrets bool
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1beta1.AddToScheme(s))
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(policyv1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	utilruntime.Must(authenticationv1.AddToScheme(s))
	// needed by the command preflight
	utilruntime.Must(admissionregistrationv1.AddToScheme(s))
	utilruntime.Must(appsv1.AddToScheme(s))
	utilruntime.Must(certificatesv1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(authorizationv1.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}

// Connect returns a client for the selected cluster. Connect sends no request.
func (e *Env) Connect() (*Cluster, error) { return e.connect(nil) }

// connect is like Connect. If wrapFor is not nil, it gets the address of the API server and returns a wrapper for the
// transport.
func (e *Env) connect(wrapFor func(host string) func(http.RoundTripper) http.RoundTripper) (*Cluster, error) {
	if err := e.checkKubeconfig(); err != nil {
		return nil, err
	}
	namespace, _, err := e.clientConfig().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := e.clientConfig().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	// A user waits for the result of few requests, so the limits must not slow them down.
	config.QPS, config.Burst = 50, 100
	config.WarningHandlerWithContext = warningCollector{}
	clock := &serverClock{now: e.Now}
	config.Wrap(clock.wrap)
	if wrapFor != nil {
		config.Wrap(wrapFor(config.Host))
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, explain(err, config.Host)
	}
	return &Cluster{WithWatch: c, Namespace: namespace, server: config.Host, clock: clock, config: config}, nil
}

// Explain adds an explanation for the user to an error of the API server.
func (c *Cluster) Explain(err error) error { return explain(err, c.server) }

func explain(err error, server string) error {
	var (
		dial  *net.OpError
		asked *url.Error
		group *discovery.ErrGroupDiscoveryFailed
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case meta.IsNoMatchError(err), isUnknownResource(err):
		return fmt.Errorf("the cluster at %s does not serve Machinist's kinds: check that it is the control cluster and that the CRDs are installed (%w)", server, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster at %s does not accept your credentials: %w", server, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you do not have the permission for this in the cluster at %s: %w", server, err)
	case errors.As(err, &dial), errors.As(err, &asked), errors.As(err, &group):
		return fmt.Errorf("the cluster at %s does not answer: %w", server, err)
	}
	return err
}

// isUnknownResource reports whether the API server does not serve the path. Such a 404 response contains no object
// name, but the 404 response for a missing object contains the name of the object.
func isUnknownResource(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}
