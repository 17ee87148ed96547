package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	admissionwebhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/test/env"
)

const (
	system = "machinist-system"
	core   = "machinist-manager"
	sim    = "machinist-provider-sim"
	// heldLease is the name of a Lease that its holder never releases.
	heldLease = "held"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, env.Patience, true,
		func(context.Context) (bool, error) {
			last = check()
			return last == nil, nil
		}); err != nil {
		t.Fatalf("wait until %s: %v: %v", what, err, last)
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func installWebhooks(t *testing.T, configurations ...client.Object) {
	t.Helper()
	c := env.Client(t)
	if err := c.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	must(t, "install the webhooks", install.Apply(t.Context(), env.Config(), configurations...))
	t.Cleanup(func() {
		for _, configuration := range configurations {
			if err := c.Delete(context.Background(), configuration); err != nil {
				t.Error(err)
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: system, Name: configuration.GetName() + "-webhook"}}
			if err := c.Delete(context.Background(), secret); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
}

func urlOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return "https://localhost:" + port
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	must(t, "find an address", err)
	return address
}

// serve runs a process with one webhook for the duration of the test. Only the leader maintains the certificate.
func serve(t *testing.T, name string, leads bool, handler func(manager.Manager) admissionwebhook.Handler,
	flags ...string) {
	t.Helper()
	serving := &admission.ServingOptions{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	serving.AddFlags(fs)
	must(t, "parse the flags", fs.Parse(append([]string{"--webhook-hosts=localhost"}, flags...)))
	must(t, "validate the flags", serving.Validate())
	server, err := serving.Server()
	must(t, "create the server", err)
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: heldLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](100000), AcquireTime: &now, RenewTime: &now,
		}}
	if err := env.Client(t).Create(t.Context(), lease); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(env.Config(), manager.Options{
		Scheme: env.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: server,
		LeaderElection: !leads, LeaderElectionID: heldLease, LeaderElectionNamespace: system,
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	must(t, "create the manager", err)
	ctx, cancel := context.WithCancel(context.Background())
	process := admission.Process{
		Name: name, Namespace: system, Manager: mgr, Writer: mgr.GetClient(), Log: mgr.GetLogger(),
	}
	if name == core {
		process.Mutating = admission.StoreReplicas{}
	}
	must(t, "serve the webhook", serving.Serve(ctx, process, handler(mgr)))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the process ended with %v", err)
		}
	})
}

func asCore(mgr manager.Manager) admissionwebhook.Handler {
	return admission.NewCoreWebhook(mgr.GetScheme(), mgr.GetCache(), mgr.GetAPIReader())
}

func presentedBy(address string) ([]byte, error) {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Raw, nil
}

func checkPresented(want []byte, addresses ...string) error {
	for _, address := range addresses {
		got, err := presentedBy(address)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s presents another certificate", address)
		}
	}
	return nil
}

type listener struct {
	client.Client
	mu       sync.Mutex
	warnings []string
}

func newListener(t *testing.T) *listener {
	t.Helper()
	l := &listener{}
	c := rest.CopyConfig(env.Config())
	c.WarningHandler = l
	var err error
	l.Client, err = client.New(c, client.Options{Scheme: env.Scheme()})
	must(t, "create a client", err)
	return l
}

// HandleWarningHeader implements rest.WarningHandler.
func (l *listener) HandleWarningHeader(_ int, _ string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnings = append(l.warnings, text)
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.warnings)
}

// fields returns the field names of an Invalid error from a webhook, or nil for other errors.
func fields(err error) []string {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil || !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "admission webhook") {
		return nil
	}
	var list []string
	for _, cause := range status.Status().Details.Causes {
		list = append(list, cause.Field)
	}
	return list
}
