package standin

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const infrastructureFinalizer = "simmachine.infrastructure.cluster.x-k8s.io"

// clusterAPI is the infrastructure provider of Cluster API for the simulated cloud. Only Cluster API's own manager
// reconciles deployments, sets and machines.
var clusterAPI = group{
	version:   "v1beta2",
	parents:   []string{deployments, sets},
	reconcile: (*pass).infrastructure,

	unstableStatus: true,
}

// infrastructure reconciles the infrastructure objects of all Clusters, as the contract of Cluster API for
// infrastructure providers describes. The objects of a paused Cluster are not touched.
func (p *pass) infrastructure(ctx context.Context) error {
	clusters, err := p.list(ctx, p.kind("Cluster"))
	if err != nil {
		return err
	}
	provisioned := map[string]bool{}
	for _, cluster := range clusters {
		if paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused"); paused {
			p.pending++
			return nil // A test has one Cluster.
		}
		provisioned[cluster.GetName()], _, _ = unstructured.NestedBool(cluster.Object, "status", "initialization",
			"infrastructureProvisioned")
	}
	of, err := p.list(ctx, infrastructureKind("SimCluster"))
	if err != nil {
		return err
	}
	for _, c := range of {
		if err := p.setStatus(ctx, c, map[string]any{"initialization": map[string]any{"provisioned": true}}); err != nil {
			return err
		}
	}
	for _, parents := range [][]*unstructured.Unstructured{p.objects[deployments], p.objects[sets]} {
		for _, parent := range parents {
			available, _, _ := unstructured.NestedInt64(parent.Object, "status", "availableReplicas")
			if available != replicas(parent) {
				p.pending++
			}
		}
	}
	checks, err := p.list(ctx, p.kind("MachineHealthCheck"))
	if err != nil {
		return err
	}
	for _, check := range checks {
		if len(check.GetOwnerReferences()) == 0 {
			p.pending++ // Cluster API's manager has not processed the health check yet.
		}
	}
	copies, err := p.list(ctx, infrastructureKind("SimMachine"))
	if err != nil {
		return err
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, c := range copies {
		byName[c.GetName()] = c
	}
	var errs []error
	for _, m := range p.objects[machines] {
		name, _, _ := unstructured.NestedString(m.Object, "spec", "infrastructureRef", "name")
		cluster, _, _ := unstructured.NestedString(m.Object, "spec", "clusterName")
		if phase, _, _ := unstructured.NestedString(m.Object, "status", "phase"); phase != "Running" {
			p.pending++
		}
		if c := byName[name]; c == nil || !metav1.IsControlledBy(c, m) || !provisioned[cluster] {
			p.pending++
		} else if err := p.infrastructureMachine(ctx, m, c); err != nil {
			errs = append(errs, fmt.Errorf("SimMachine %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *pass) infrastructureMachine(ctx context.Context, m, c *unstructured.Unstructured) error {
	in, exists := p.instances[m.GetName()]
	if c.GetDeletionTimestamp() != nil {
		p.pending++
		if exists {
			return p.deleteInstance(ctx, in)
		}
		return p.update(ctx, c, func() { controllerutil.RemoveFinalizer(c, infrastructureFinalizer) })
	}
	if err := p.update(ctx, c, func() { controllerutil.AddFinalizer(c, infrastructureFinalizer) }); err != nil {
		return err
	}
	if !exists {
		return p.createInfrastructure(ctx, m, c)
	}
	if err := p.update(ctx, c, func() { setProviderID(c, in) }); err != nil {
		return err
	}
	return p.setStatus(ctx, c, map[string]any{"initialization": map[string]any{"provisioned": true},
		"failureDomain": in.Zone, "addresses": []any{map[string]any{"type": "Hostname", "address": in.NodeName}}})
}

// createInfrastructure creates the instance when the bootstrap provider has rendered the user data.
func (p *pass) createInfrastructure(ctx context.Context, m, c *unstructured.Unstructured) error {
	p.pending++
	name, _, _ := unstructured.NestedString(m.Object, "spec", "bootstrap", "dataSecretName")
	if name == "" {
		return nil
	}
	secret := &corev1.Secret{}
	if err := p.kube.Get(ctx, client.ObjectKey{Namespace: m.GetNamespace(), Name: name}, secret); err != nil {
		return err
	}
	spec, _, _ := unstructured.NestedMap(c.Object, "spec")
	// In a guest, cloud-init renders the template, which has no variables here.
	userData := bytes.TrimPrefix(secret.Data["value"], []byte("## template: jinja\n"))
	return p.createInstance(ctx, Request{Machine: m.GetName(), UID: m.GetUID(), Description: spec, UserData: userData})
}

func infrastructureKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: kind}
}
