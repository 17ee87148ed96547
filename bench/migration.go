package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/transfer/migration"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

type migrationOptions struct {
	machines, perSet, workers int
	progress                  io.Writer
}

// migrationCommand measures a migration from another system. The migrator is the only work of this process, so the
// memory of the process is that of the migrator. The simulated cloud and provider have no delays.
func migrationCommand() *cobra.Command {
	o := &migrationOptions{}
	cmd := &cobra.Command{
		Use:   "migration",
		Short: "Measure the cost of migrating a fleet of another system",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.machines < 1 || o.perSet < 1 || o.workers < 1 {
				return errors.New("--machines, --per-set and --workers must be at least 1")
			}
			o.progress = cmd.ErrOrStderr()
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.machines, "machines", 10000, "number of old machines")
	f.IntVar(&o.perSet, "per-set", 100, "machines in each old deployment")
	f.IntVar(&o.workers, "workers", 32, "number of parallel writes that create or adopt the old fleet")
	return cmd
}

type migrationPhase struct {
	name    string
	seconds float64
	passes  int
	writes  int
	// status is the part of the writes that updates the status of the Migration.
	status int
	// peakMiB is the maximum resident set of this process so far.
	peakMiB float64
}

type migrationBench struct {
	*migrationOptions
	fleet  *oldFleet
	client *countingClient
	r      *migration.Reconciler
	key    client.ObjectKey
	// admin acts as the administrator and as the provider.
	admin client.Client
}

func (o *migrationOptions) printf(format string, args ...any) {
	fmt.Fprintf(o.progress, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (o *migrationOptions) run(ctx context.Context, out io.Writer) (err error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	if err := install.Install(ctx, cp.Config()); err != nil {
		return err
	}
	if err := install.Apply(ctx, cp.Config(), oldDefinitions()...); err != nil {
		return err
	}
	system := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: manifests.Namespace}}
	err = install.Apply(ctx, cp.Config(), append([]client.Object{system},
		manifests.MigrationPolicies(adopter, namespace, oldNamespace)...)...)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	newClient := func(user string) (client.WithWatch, error) {
		config, err := cp.UserConfig(user, "system:masters")
		if err != nil {
			return nil, err
		}
		config.QPS = -1
		return client.NewWithWatch(config, client.Options{Scheme: scheme})
	}
	admin, err := newClient("bench")
	if err != nil {
		return err
	}
	const user = "machinist-migrator"
	api, err := newClient(user)
	if err != nil {
		return err
	}
	b := &migrationBench{migrationOptions: o, admin: admin, key: client.ObjectKey{Namespace: namespace, Name: "bench"},
		client: newCountingClient(api), fleet: newOldFleet(o.machines, o.perSet, o.workers)}
	b.printf("creating %d old machines", o.machines)
	if err := b.fleet.create(ctx, admin); err != nil {
		return err
	}
	b.r = migration.New(migration.Options{Cloud: b.fleet, ClusterID: func() string { return "bench" },
		Control: b.client.Client, Target: b.client.Client,
		NewClient: func() (client.Client, error) { return newClient(user) },
		User:      func(context.Context) (string, error) { return user, nil }, Clock: clock.RealClock{},
		SystemNamespace: manifests.Namespace, SharedNamespaces: []string{osmNamespace},
		// There is no old controller to wait for, so short timeouts are enough.
		Timing: migration.Timing{Probes: 2, ProbeInterval: 100 * time.Millisecond, EmptyFor: time.Second,
			Poll: 50 * time.Millisecond, Replan: 50 * time.Millisecond},
	})
	phases, err := b.measure(ctx)
	if err != nil {
		return err
	}
	b.table(out, phases)
	return nil
}

func (b *migrationBench) measure(ctx context.Context) ([]migrationPhase, error) {
	electsLeader := false
	m := &v1beta1.Migration{}
	m.Namespace, m.Name = b.key.Namespace, b.key.Name
	m.Spec = v1beta1.MigrationSpec{Source: provider.SourceClusterK8s, SourceNamespace: oldNamespace,
		Provider: b.fleet.Name(),
		Stage:    v1beta1.MigrationPlan, Accept: []string{"UserData", "NoUserData"},
		Fence: v1beta1.MigrationFence{ElectsLeader: &electsLeader}}
	if err := b.admin.Create(ctx, m); err != nil {
		return nil, fmt.Errorf("create the Migration: %w", err)
	}
	process.SpareMemory()
	debug.FreeOSMemory()
	// Reset the peak of the process's memory, which /proc reports, so that the peak does not include the preparation.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200); err != nil {
		return nil, fmt.Errorf("reset the maximum resident set: %w", err)
	}
	phases := []migrationPhase{{name: string(v1beta1.MigrationPlanning)}}
	for {
		begun, before := time.Now(), b.client.counts()
		result, err := b.r.Reconcile(ctx, reconcile.Request{NamespacedName: b.key})
		if err != nil {
			return nil, err
		}
		after, current := b.client.counts(), &phases[len(phases)-1]
		current.passes++
		current.seconds += time.Since(begun).Seconds()
		current.writes += after.writes - before.writes
		current.status += after.status - before.status
		if current.peakMiB, err = peakOf(os.Getpid()); err != nil {
			return nil, err
		}
		if err := b.fleet.adopt(ctx, b.admin, b.client.takeUnpaused()); err != nil {
			return nil, err
		}
		if err := b.admin.Get(ctx, b.key, m); err != nil {
			return nil, fmt.Errorf("read the Migration: %w", err)
		}
		if len(m.Status.Troubles) > 0 {
			return nil, fmt.Errorf("in phase %s: %s", m.Status.Phase, m.Status.Troubles[0])
		}
		switch {
		case m.Status.Phase == v1beta1.MigrationCompleted:
			return phases, nil
		case m.Status.Phase == v1beta1.MigrationPlanning && m.Status.PlanHash != "" && m.Spec.PlanHash == "":
			m.Spec.Stage, m.Spec.PlanHash = v1beta1.MigrationCommit, m.Status.PlanHash
			if err := b.admin.Update(ctx, m); err != nil {
				return nil, fmt.Errorf("confirm the plan: %w", err)
			}
		}
		if m.Status.Phase != "" && string(m.Status.Phase) != current.name {
			b.printf("%s: %.1f s in %d passes, %d writes, peak memory so far %.0f MiB", current.name, current.seconds, current.passes,
				current.writes, current.peakMiB)
			phases = append(phases, migrationPhase{name: string(m.Status.Phase)})
		}
		if !pause(ctx, min(result.RequeueAfter, 50*time.Millisecond)) {
			return nil, ctx.Err()
		}
	}
}

func (b *migrationBench) table(out io.Writer, phases []migrationPhase) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "phase\tseconds\tpasses\twrites per machine\twrites of the status\tpeak MiB\t")
	sum := 0
	for _, p := range phases {
		sum += p.writes
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%.2f\t%d\t%.0f\t\n", p.name, p.seconds, p.passes, float64(p.writes)/float64(b.machines),
			p.status, p.peakMiB)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "%d machines, %.2f writes per machine\n", b.machines, float64(sum)/float64(b.machines))
}

// oldDefinitions removes the status subresources, so that one request can create an object with its status.
func oldDefinitions() []client.Object {
	var all []client.Object
	for _, definition := range sources.CRDs(provider.SourceClusterK8s) {
		spec, _ := definition.Object["spec"].(map[string]any)
		versions, _ := spec["versions"].([]any)
		for _, version := range versions {
			delete(version.(map[string]any), "subresources")
		}
		all = append(all, definition)
	}
	return all
}
