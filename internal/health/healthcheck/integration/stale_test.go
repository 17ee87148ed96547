package integration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type staleCache struct {
	client.Reader
	machines *v1beta1.MachineList
	nodes    *corev1.NodeList
	checks   *v1beta1.MachineHealthCheckList
}

func newStaleCache(b *bench) *staleCache {
	b.Helper()
	p := &staleCache{Reader: b.c, machines: &v1beta1.MachineList{}, nodes: &corev1.NodeList{},
		checks: &v1beta1.MachineHealthCheckList{}}
	b.must(b.c.List(b.ctx(), p.machines, client.InNamespace(b.namespace)))
	b.must(b.c.List(b.ctx(), p.nodes))
	b.must(b.c.List(b.ctx(), p.checks, client.InNamespace(b.namespace)))
	return p
}

func (p *staleCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.NodeList:
		p.nodes.DeepCopyInto(list)
	case *v1beta1.MachineList:
		p.machines.DeepCopyInto(list)
	case *v1beta1.MachineHealthCheckList:
		p.checks.DeepCopyInto(list)
	default:
		return fmt.Errorf("%T is not in the stale cache", list)
	}
	return nil
}

func (p *staleCache) clientOf(c client.Client) client.Client { return staleClient{c, p} }

type staleClient struct {
	client.Client
	stale *staleCache
}

func (c staleClient) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return c.stale.List(ctx, list, o...)
}
