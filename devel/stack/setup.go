package stack

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
)

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

// install applies the objects of the charts in each cluster, with role bindings for the users of the two processes. If
// the processes serve webhooks, it also installs the webhook configurations with their URLs.
func (s *Stack) install(ctx context.Context) error {
	return s.inEachCluster(func(parts manifests.Parts, cp *controlplane.ControlPlane) error {
		parts.User, parts.WebhookURL = Manager, s.webhookURL(Manager)
		manager, err := parts.Manager()
		if err != nil {
			return err
		}
		parts.User, parts.WebhookURL = s.backend.Program(), s.webhookURL(s.backend.Program())
		provider, err := parts.Provider(s.backend.Driver())
		if err != nil {
			return err
		}
		namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}}
		all := slices.Concat([]client.Object{namespace}, manager, provider)
		return install.Apply(ctx, cp.Config(), all...)
	})
}

func (s *Stack) installMigrator(ctx context.Context, namespaces []string) error {
	return s.inEachCluster(func(parts manifests.Parts, cp *controlplane.ControlPlane) error {
		parts.User, parts.MigratorNamespaces = s.migratorUser(), namespaces
		roles, err := parts.Migrator(s.backend.Driver())
		if err != nil {
			return err
		}
		return install.Apply(ctx, cp.Config(), roles...)
	})
}

// inEachCluster calls the function do once for each cluster. The parameter parts selects the objects of Machinist that
// the cluster needs.
func (s *Stack) inEachCluster(do func(manifests.Parts, *controlplane.ControlPlane) error) error {
	for _, at := range []struct {
		cp              *controlplane.ControlPlane
		control, target bool
	}{
		{s.Control, true, !s.options.SeparateTarget && !s.options.NoTarget},
		{s.Target, false, s.options.SeparateTarget && !s.options.NoTarget},
	} {
		if !at.control && !at.target {
			continue
		}
		parts := manifests.Parts{Control: at.control, Target: at.target, WatchNamespace: s.options.Namespace,
			Shards: s.options.Shards, SecretNamespaces: s.options.SecretNamespaces,
			RemediationKinds: s.options.RemediationKinds}
		if parts.SecretNamespaces == nil {
			parts.SecretNamespaces = []string{"*"}
		}
		if err := do(parts, at.cp); err != nil {
			return err
		}
	}
	return nil
}

func acquiredAt(ctx context.Context, c client.Client, name string) (time.Time, error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: SystemNamespace, Name: name}, lease); err != nil {
		return time.Time{}, err
	}
	if lease.Spec.AcquireTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return time.Time{}, fmt.Errorf("the Lease %s has no holder", name)
	}
	return lease.Spec.AcquireTime.Time, nil
}
