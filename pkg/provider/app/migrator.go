package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/transfer/migration"
	"machinist.dev/machinist/pkg/provider"
)

type migrator struct {
	cloudQPS   float64
	cloudBurst int
	timing     migration.Timing
	// sharedNamespaces lists namespaces. The old system's objects in every namespace may use the Secrets and ConfigMaps
	// in these namespaces.
	sharedNamespaces []string
}

func (s *migrator) addFlags(fs *pflag.FlagSet) {
	fs.Float64Var(&s.cloudQPS, "cloud-qps", s.cloudQPS,
		"maximum number of calls to the cloud per second, for the whole process; 0 means no limit")
	fs.IntVar(&s.cloudBurst, "cloud-burst", s.cloudBurst,
		"number of calls to the cloud that may exceed --cloud-qps in a burst")
	fs.DurationVar(&s.timing.ProbeInterval, "fence-probe-interval", s.timing.ProbeInterval,
		fmt.Sprintf("time between two checks that the old objects are protected; there are %d checks, each over a new connection; if there is only one API server, 1s is enough",
			s.timing.Probes))
	fs.DurationVar(&s.timing.LeaseMargin, "fence-lease-margin", s.timing.LeaseMargin,
		"how long an old controller may still act after its lost Lease has expired")
	fs.DurationVar(&s.timing.EmptyFor, "remove-kinds-after", s.timing.EmptyFor,
		"wait time after the last old object is gone; then the CustomResourceDefinitions of the old kinds are deleted")
	fs.StringSliceVar(&s.sharedNamespaces, "shared-secret-namespaces", s.sharedNamespaces,
		"namespaces whose Secrets and ConfigMaps may be used by old objects of all namespaces; Secrets and ConfigMaps in other namespaces need the label "+
			v1beta1.LabelMigrationUse+"="+v1beta1.MigrationUseAllowed)
}

func (s *migrator) validate() error {
	var errs []error
	if s.cloudBurst < 1 {
		errs = append(errs, fmt.Errorf("--cloud-burst is %d; it must be at least 1", s.cloudBurst))
	}
	if s.cloudQPS < 0 {
		errs = append(errs, fmt.Errorf("--cloud-qps is %g; it must not be negative", s.cloudQPS))
	}
	for flag, d := range map[string]time.Duration{"fence-probe-interval": s.timing.ProbeInterval,
		"fence-lease-margin": s.timing.LeaseMargin, "remove-kinds-after": s.timing.EmptyFor} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s is %s; it must not be negative", flag, d))
		}
	}
	for _, namespace := range s.sharedNamespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--shared-secret-namespaces contains %q, which is not the name of a namespace: %s",
				namespace, problems[0]))
		}
	}
	return errors.Join(errs...)
}

// migratorCommand returns the subcommand that takes over fleets of other machine controllers. migratorCommand runs as
// a separate process with its own role and Lease, because it needs permissions that no provider process should have.
func migratorCommand(p Provider) *cobra.Command {
	config := process.DefaultConfig("machinist-migrator-" + p.Name)
	settings := &migrator{cloudBurst: 10, timing: migration.DefaultTiming}
	cmd := &cobra.Command{
		Use:           "migrator",
		Short:         fmt.Sprintf("Take over fleets of other systems whose instances belong to the provider %s", p.Name),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			process.SpareMemory()
			ctx, stop := process.SignalContext(cmd.Context(), nil)
			defer stop()
			return runMigrator(ctx, config, settings, p)
		},
	}
	config.AddFlags(cmd.Flags())
	settings.addFlags(cmd.Flags())
	if p.AddFlags != nil {
		p.AddFlags(cmd.Flags())
	}
	return cmd
}

func runMigrator(ctx context.Context, config *process.Config, s *migrator, p Provider) error {
	if err := errors.Join(config.Validate(), s.validate()); err != nil {
		return err
	}
	log, err := config.Logger()
	if err != nil {
		return err
	}
	driver, err := p.driver()
	if err != nil {
		return err
	}
	o := operatorOptions(log, defaultSettings())
	utilruntime.Must(apiextensionsv1.AddToScheme(o.Scheme))
	// The migrator reads other objects from the API server. With a stale cache, it might create or delete an object
	// twice.
	o.ControlKinds = []process.Kind{{Object: &v1beta1.Migration{}}}
	o.TargetKinds = nil
	op, err := process.New(config, o)
	if err != nil {
		return err
	}
	s.timing.FormerLeader = 2 * config.LeaseDuration
	return op.Run(ctx, func(context.Context) error { return addMigrations(op, s, driver) })
}

func addMigrations(op *process.Process, s *migrator, driver provider.Driver) error {
	control, mgr, realClock := op.Control(), op.Manager(), clock.RealClock{}
	cloudMetrics, err := cloud.NewMetrics(metrics.Registry, driver.Name())
	if err != nil {
		return err
	}
	migrationMetrics, err := migration.NewMetrics(metrics.Registry, driver.Name(), control.Cache)
	if err != nil {
		return err
	}
	cloudOptions := cloud.Options{Driver: driver, Fence: op.Fence().Check, Metrics: cloudMetrics, Clock: realClock}
	if s.cloudQPS > 0 {
		cloudOptions.Limiter = rate.NewLimiter(rate.Limit(s.cloudQPS), s.cloudBurst)
	}
	options := migration.Options{
		Cloud:            cloud.New(cloudOptions),
		ClusterID:        op.ClusterID,
		Control:          control.LiveClient,
		NewClient:        func() (client.Client, error) { return freshClient(control) },
		SystemNamespace:  op.OwnNamespace(),
		SharedNamespaces: s.sharedNamespaces,
		User:             ownUser(mgr.GetConfig()),
		Clock:            realClock,
		Timing:           s.timing,
		Metrics:          migrationMetrics,
	}
	if target := op.Target(); target != nil {
		options.Target = target.LiveClient
	}
	options.Watch, err = client.NewWithWatch(control.Config, client.Options{Scheme: control.LiveClient.Scheme(),
		Mapper: control.LiveClient.RESTMapper()})
	if err != nil {
		return fmt.Errorf("create a client for watches: %w", err)
	}
	reconciler := migration.New(options)
	err = builder.ControllerManagedBy(mgr).Named("migration").
		For(&v1beta1.Migration{}, builder.WithPredicates(migration.ChangePredicate())).
		WatchesRawSource(reconciler.ChangesOfOldObjects()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("add the migration controller: %w", err)
	}
	return nil
}

// freshClient returns a client that opens a new connection for each request, so that each request may reach another API
// server.
func freshClient(control *process.Cluster) (client.Client, error) {
	tls, err := rest.TLSConfigFor(control.Config)
	if err != nil {
		return nil, fmt.Errorf("load the TLS certificates: %w", err)
	}
	base := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tls, DisableKeepAlives: true,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second}
	transport, err := rest.HTTPWrappersForConfig(control.Config, base)
	if err != nil {
		return nil, fmt.Errorf("load the credentials: %w", err)
	}
	return client.New(control.Config, client.Options{HTTPClient: &http.Client{Transport: transport},
		Scheme: control.LiveClient.Scheme(), Mapper: control.LiveClient.RESTMapper()})
}

// ownUser returns a function that returns the user name of this process. The function asks the API server once.
func ownUser(config *rest.Config) func(context.Context) (string, error) {
	var known atomic.Pointer[string]
	return func(ctx context.Context) (string, error) {
		if name := known.Load(); name != nil {
			return *name, nil
		}
		reviews, err := authenticationclient.NewForConfig(config)
		if err != nil {
			return "", fmt.Errorf("create an authentication client: %w", err)
		}
		review, err := reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("ask the API server for the user of this process: %w", err)
		}
		known.Store(&review.Status.UserInfo.Username)
		return review.Status.UserInfo.Username, nil
	}
}
