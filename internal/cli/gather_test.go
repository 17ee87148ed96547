package cli

import (
	"context"
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestProcessReportsUnreadableLease(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "x", errors.New("no rule allows it"))
	for _, c := range []struct {
		name     string
		answers  map[string]error
		unread   string
		searched int
	}{
		{name: "no lease", searched: 3},
		{name: "no permission", answers: map[string]error{"machinist-system": forbidden, "kube-system": forbidden, "own": forbidden},
			unread: "You may not read leases in machinist-system, kube-system, own, so it is unknown whether the processes are running."},
		{name: "no permission in one namespace", answers: map[string]error{"kube-system": forbidden},
			unread: "You may not read leases in kube-system, so it is unknown whether the processes are running."},
		{name: "timeout", answers: map[string]error{"own": context.DeadlineExceeded},
			unread: "Leases could not be read, so it is unknown whether the processes are running: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme()).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object,
					options ...client.GetOption) error {
					if err := c.answers[key.Namespace]; err != nil {
						return err
					}
					return api.Get(ctx, key, o, options...)
				}}).Build()
			p, unread := (&Cluster{WithWatch: api, Namespace: "own"}).process(t.Context(), "machinist-manager", "own", "")
			if unread != c.unread || len(p.Searched) != c.searched || p.IsKnown || p.Name != "machinist-manager" {
				t.Errorf("%+v, %q", p, unread)
			}
		})
	}
}
