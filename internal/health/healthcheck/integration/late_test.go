package integration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// photograph is a cache that has not moved since.
type photograph struct {
	client.Reader
	machines *v1beta1.MachineList
	nodes    *corev1.NodeList
	checks   *v1beta1.MachineHealthCheckList
}

func photographed(b *bench) *photograph {
	b.Helper()
	p := &photograph{Reader: b.c, machines: &v1beta1.MachineList{}, nodes: &corev1.NodeList{},
		checks: &v1beta1.MachineHealthCheckList{}}
	b.must(b.c.List(b.ctx(), p.machines, client.InNamespace(b.namespace)))
	b.must(b.c.List(b.ctx(), p.nodes))
	b.must(b.c.List(b.ctx(), p.checks, client.InNamespace(b.namespace)))
	return p
}

func (p *photograph) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.NodeList:
		p.nodes.DeepCopyInto(list)
	case *v1beta1.MachineList:
		p.machines.DeepCopyInto(list)
	case *v1beta1.MachineHealthCheckList:
		p.checks.DeepCopyInto(list)
	default:
		return fmt.Errorf("%T is not on the photograph", list)
	}
	return nil
}

// of returns a client that reads from the photograph.
func (p *photograph) of(c client.Client) client.Client { return lateClient{c, p} }

type lateClient struct {
	client.Client
	late *photograph
}

func (c lateClient) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return c.late.List(ctx, list, o...)
}
