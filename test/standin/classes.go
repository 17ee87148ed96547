package standin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

func (p *pass) class(ctx context.Context, c *unstructured.Unstructured) error {
	if c.GetDeletionTimestamp() != nil {
		return nil
	}
	if err := p.update(ctx, c, func() { controllerutil.AddFinalizer(c, p.parentFinalizer) }); err != nil {
		return err
	}
	for _, field := range []string{"secretRef", "credentialsSecretRef"} {
		name, _, _ := unstructured.NestedString(c.Object, field, "name")
		secret := &corev1.Secret{}
		if err := p.kube.Get(ctx, client.ObjectKey{Namespace: c.GetNamespace(), Name: name}, secret); err != nil {
			return err
		}
		err := p.update(ctx, secret, func() { controllerutil.AddFinalizer(secret, p.parentFinalizer) })
		if err != nil {
			return err
		}
	}
	return p.deleteOrphans(ctx)
}

func (p *pass) deleteOrphans(ctx context.Context) error {
	names := map[string]bool{}
	for _, m := range p.objects[machines] {
		names[m.GetName()] = true
	}
	for _, in := range p.instances {
		if !in.Collected || names[in.Machine] {
			continue
		}
		if err := p.deleteInstance(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) description(m *unstructured.Unstructured) map[string]any {
	from := m
	if name, _, _ := unstructured.NestedString(m.Object, p.className...); len(p.className) > 0 {
		from = &unstructured.Unstructured{}
		for _, c := range p.objects[classes] {
			if c.GetName() == name {
				from = c
			}
		}
	}
	description, _, _ := unstructured.NestedMap(from.Object, p.instance...)
	return description
}
