package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// The phase Committing: the point of no return.

// committing removes from instances what the old system would collect them by, and from Nodes what it left there. Only
// then may an old object go.
func (p *pass) committing(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	made, mine, all, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	for _, f := range made.findings {
		if f.Code == CodeCannotImport || f.Code == CodeSecretUnreadable {
			// Instances that cannot be looked for now would pass for such that are gone.
			p.trouble("%s", f.line())
		}
	}
	if p.counted > 0 {
		return nil
	}
	machines := map[types.UID]*v1beta1.Machine{}
	for _, m := range mine.ofMigration() {
		machines[oldUID(m)] = m
	}
	owned, err := p.ownInstances(ctx, mine)
	if err != nil {
		return err
	}
	left := 0
	located := map[types.UID]bool{}
	for _, m := range made.machines {
		located[m.old.GetUID()] = true
		our := machines[m.old.GetUID()]
		switch {
		case our == nil:
			p.trouble("%s has the instance %s and no Machine: its old object stays", m.as, m.instance.ProviderID)
		case owned[m.instance.ProviderID] != our.UID:
			p.trouble("instance %s of %s does not carry the tags of Machine %s", m.instance.ProviderID, m.as, our.Name)
		case m.instance.Collected:
			left++
			if err := p.release(ctx, m, our); err != nil {
				p.trouble("instance %s of %s: %v", m.instance.ProviderID, m.as, err)
			}
		}
	}
	for uid, our := range machines {
		if !located[uid] && owned[our.Spec.ProviderID] == our.UID {
			// A list of the old system's that lacks it must not pass for the end of the instance.
			p.trouble("instance %s of Machine %s is there, and is not found by what the old system left at the cloud",
				our.Spec.ProviderID, our.Name)
		}
	}
	traced, err := p.clearNodes(ctx, all, made)
	if err != nil {
		return err
	}
	if p.unchangedFor(p.migration, len(traced)) >= patience && len(traced) > 0 {
		p.trouble("The old system's keys come back to %s, the first is %s: a controller of the old system runs that the fence "+
			"does not stop. Name it in spec.fence, or stop it", wording.Count(len(traced), "node"), traced[0].Name)
	}
	if left > 0 || len(traced) > 0 || p.counted > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationRemoving)
}

// ownInstances returns the UID of the Machine whose tags each instance of this installation carries.
func (p *pass) ownInstances(ctx context.Context, mine *ours) (map[string]types.UID, error) {
	owned := map[string]types.UID{}
	for _, class := range madeOf(mine, mine.classes) {
		resolved, err := p.classOf(ctx, class)
		if err != nil {
			return nil, err
		}
		for token := ""; ; {
			page, err := p.Cloud.List(ctx, provider.ListRequest{Class: resolved, ClusterID: p.ClusterID(), Continue: token})
			if err != nil {
				return nil, fmt.Errorf("list the instances of class %s: %w", class.Name, err)
			}
			for _, in := range page.Instances {
				if in.ClusterID == p.ClusterID() {
					owned[in.ProviderID] = in.MachineUID
				}
			}
			if token = page.Continue; token == "" {
				break
			}
		}
	}
	return owned, nil
}

// classOf returns a class with its credentials, as drivers take it.
func (p *pass) classOf(ctx context.Context, class *v1beta1.MachineClass) (provider.Class, error) {
	resolver := resolve.Resolver{Classes: p.Control, Secrets: p.Control}
	credentials, err := resolver.Credentials(ctx, class.Namespace, class.Spec.CredentialsRef)
	if err != nil {
		return provider.Class{}, fmt.Errorf("read the credentials of class %s: %w", class.Name, err)
	}
	resolved := resolve.OfClass(class)
	resolved.Credentials = credentials
	return resolved.Class(), nil
}

func (p *pass) release(ctx context.Context, m *machine, our *v1beta1.Machine) error {
	if m.class.object == nil {
		return fmt.Errorf("its class could not be converted")
	}
	class, err := p.classOf(ctx, m.class.object)
	if err != nil {
		return err
	}
	return p.Cloud.Release(ctx, provider.ReleaseRequest{Machine: identity(our), Class: class, ClusterID: p.ClusterID(),
		ProviderID: m.instance.ProviderID, Scope: scopeOf(our), Source: p.system.Group()})
}

func identity(m *v1beta1.Machine) provider.Machine {
	return provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

func scopeOf(m *v1beta1.Machine) string {
	if m.Status.Instance == nil {
		return ""
	}
	return m.Status.Instance.Scope
}

// clearNodes removes what the old system left on the Nodes of the plan, and returns those on which there was something.
func (p *pass) clearNodes(ctx context.Context, all nodes, made *plan) (traced []*corev1.Node, err error) {
	traces := p.system.NodeTraces()
	for _, m := range made.machines {
		if same := all.byProviderID[m.instance.ProviderID]; len(same) == 1 && hasTraces(same[0], traces) {
			traced = append(traced, same[0])
		}
	}
	return traced, each(ctx, p.Parallel, traced, func(ctx context.Context, node *corev1.Node) error {
		// With the resource version, because lists are written as a whole.
		changed := node.DeepCopy()
		removeTraces(changed, traces)
		patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
		if err := p.Target.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the old system's keys from node %s: %w", node.Name, err)
		}
		return nil
	})
}

func hasTraces(node *corev1.Node, traces source.NodeTraces) bool {
	changed := node.DeepCopy()
	return removeTraces(changed, traces)
}

// removeTraces reports whether there was something to remove.
func removeTraces(node *corev1.Node, traces source.NodeTraces) bool {
	size := func() int {
		return len(node.Labels) + len(node.Annotations) + len(node.Finalizers) + len(node.Spec.Taints) +
			len(node.OwnerReferences)
	}
	before := size()
	removeKeys(node.Labels, traces.Labels)
	removeKeys(node.Annotations, traces.Annotations)
	for mark, key := range traces.Marked {
		if has(node.Annotations, mark) {
			removeKeys(node.Annotations, []string{key, mark})
		}
	}
	node.Finalizers = slices.DeleteFunc(node.Finalizers, func(f string) bool { return names(traces.Finalizers, f) })
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return names(traces.Taints, t.Key)
	})
	node.OwnerReferences = slices.DeleteFunc(node.OwnerReferences, func(o metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		return slices.Contains(traces.OwnerGroups, group)
	})
	return size() != before
}

func removeKeys(from map[string]string, keys []string) {
	for key := range from {
		if names(keys, key) {
			delete(from, key)
		}
	}
}

// names reports whether the keys have this one, or all of its domain by a key that ends in a slash.
func names(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		return k == key || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k)
	})
}
