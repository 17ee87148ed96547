package stack

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/config"
)

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

// allow installs the generated roles and gives them to the users of the two processes.
func (s *Stack) allow(ctx context.Context) error {
	control, err := s.ControlClient()
	if err != nil {
		return err
	}
	target, err := s.TargetClient()
	if err != nil {
		return err
	}
	for _, role := range config.MetricsReader.Objects() {
		if err := control.Create(ctx, role); err != nil {
			return fmt.Errorf("make the role %s, for those who want it: %w", config.MetricsReader, err)
		}
	}
	for _, grant := range []struct {
		c    client.Client
		user string
		role config.Role
	}{
		{control, Manager, config.ManagerControl},
		{target, Manager, config.ManagerTarget},
		{control, s.backend.Program(), config.ProviderControl},
		{target, s.backend.Program(), config.ProviderTarget},
	} {
		if s.options.NoTarget && (grant.role == config.ManagerTarget || grant.role == config.ProviderTarget) {
			continue
		}
		everywhere := s.options.Namespace
		if grant.role == config.ManagerTarget || grant.role == config.ProviderTarget {
			everywhere = ""
		}
		for _, role := range grant.role.For(s.backend.Driver(), s.options.Namespace) {
			if err := allow(ctx, grant.c, role, grant.user, everywhere); err != nil {
				return fmt.Errorf("give %s to %s: %w", grant.role, grant.user, err)
			}
		}
	}
	return nil
}

// allow creates a Role or ClusterRole and binds it to the user; a ClusterRole only within a namespace, if one is given.
func allow(ctx context.Context, c client.Client, role client.Object, user, within string) error {
	if err := c.Create(ctx, role); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: role.GetName(), Namespace: role.GetNamespace()}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	if meta.Namespace == "" {
		ref.Kind, meta.Namespace = "ClusterRole", within
	}
	if meta.Namespace == "" {
		return c.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref})
	}
	return c.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref})
}

// acquiredAt returns when the lease of that name was acquired by who holds it.
func acquiredAt(ctx context.Context, c client.Client, name string) (time.Time, error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: SystemNamespace, Name: name}, lease); err != nil {
		return time.Time{}, err
	}
	if lease.Spec.AcquireTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return time.Time{}, fmt.Errorf("nobody holds the lease %s", name)
	}
	return lease.Spec.AcquireTime.Time, nil
}
