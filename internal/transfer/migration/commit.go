package migration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// This file has the phase Committing, after which the migration cannot be aborted.

// runCommitting removes the tags by which the old system finds and deletes instances. It also removes the traces of
// the old system on Nodes. Old objects may be deleted only after this phase.
func (p *pass) runCommitting(ctx context.Context) error {
	if fenced, err := p.ensureFenced(ctx, fenceScope{}); err != nil || !fenced {
		return err
	}
	plan, own, targetNodes, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	for _, f := range plan.findings {
		if f.withoutInstances() {
			// The migration must not continue: without the list, it would treat the instances of this class as deleted.
			p.addTrouble("%s", f.line())
		}
	}
	if p.troubleCount > 0 {
		return nil
	}
	machines := map[types.UID]*v1beta1.Machine{}
	for _, m := range own.migratedMachines() {
		machines[oldUID(m)] = m
	}
	owned, err := p.ownInstances(ctx, own)
	if err != nil {
		return err
	}
	left := 0
	located := map[types.UID]bool{}
	for _, m := range plan.machines {
		located[m.old.GetUID()] = true
		our := machines[m.old.GetUID()]
		switch {
		case our == nil:
			p.addTrouble("%s has instance %s but no Machine, so the old object stays", m.displayName, m.instance.ProviderID)
		case owned[m.instance.ProviderID] != our.UID:
			p.addTrouble("Instance %s of %s does not have the tags of Machine %s", m.instance.ProviderID, m.displayName,
				our.Name)
		case m.instance.Collected:
			left++
			if err := p.release(ctx, m, our, own); err != nil {
				p.addTrouble("Instance %s of %s: %v", m.instance.ProviderID, m.displayName, err)
			}
		}
	}
	for uid, our := range machines {
		if !located[uid] && owned[our.Spec.ProviderID] == our.UID {
			p.addTrouble("Instance %s of Machine %s exists, but a search by the old system's tags does not find it",
				our.Spec.ProviderID, our.Name)
		}
	}
	traced, err := p.clearNodes(ctx, targetNodes, plan)
	if err != nil {
		return err
	}
	if p.unchangedFor(p.migration, strconv.Itoa(len(traced))) >= stallTimeout && len(traced) > 0 {
		p.addTrouble("The old system's keys reappear on %s: the fence does not stop a controller of the old "+
			"system. Stop this controller, or name it in spec.fence", examples(len(traced), "node", traced[0].Name))
	}
	if left > 0 || len(traced) > 0 || p.troubleCount > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationRemoving)
}

// ownInstances maps the provider IDs of this installation's instances to the Machine UIDs in their tags.
func (p *pass) ownInstances(ctx context.Context, own *ownObjects) (map[string]types.UID, error) {
	owned := map[string]types.UID{}
	for _, class := range own.classesOf(p.migration) {
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

// classOf returns a class with its credentials in the form that a driver expects.
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

// release removes the old system's tags from an instance. The class of the plan may have another name than the class
// of the Machine, if another version of the migrator created the Machine.
func (p *pass) release(ctx context.Context, m *machine, our *v1beta1.Machine, own *ownObjects) error {
	name := ""
	if ref := our.Spec.ClassRef; ref != nil {
		name = ref.Name
	}
	object, found := own.classes[name]
	if !found {
		return fmt.Errorf("the class %s of Machine %s does not exist", name, our.Name)
	}
	class, err := p.classOf(ctx, object)
	if err != nil {
		return err
	}
	return p.Cloud.Release(ctx, provider.ReleaseRequest{Machine: machineIdentity(our), Class: class,
		ClusterID: p.ClusterID(), ProviderID: m.instance.ProviderID, Scope: scopeOf(our), Source: p.system.Group()})
}

func machineIdentity(m *v1beta1.Machine) provider.Machine {
	return provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

func scopeOf(m *v1beta1.Machine) string {
	if m.Status.Instance == nil {
		return ""
	}
	return m.Status.Instance.Scope
}

// clearNodes removes the traces of the old system from the Nodes of the plan, and returns the Nodes with traces.
func (p *pass) clearNodes(ctx context.Context, targetNodes nodes, plan *plan) (traced []*corev1.Node, err error) {
	traces := p.system.NodeTraces()
	for _, m := range plan.machines {
		if same := targetNodes.byProviderID[m.instance.nodeProviderID]; len(same) == 1 && hasTraces(same[0], traces) {
			traced = append(traced, same[0])
		}
	}
	return traced, forEach(ctx, p.Parallel, traced, func(ctx context.Context, node *corev1.Node) error {
		// The patch replaces whole lists, so it needs a resource version.
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

// removeTraces reports whether it removed anything.
func removeTraces(node *corev1.Node, traces source.NodeTraces) bool {
	size := func() int {
		return len(node.Labels) + len(node.Annotations) + len(node.Finalizers) + len(node.Spec.Taints) +
			len(node.OwnerReferences)
	}
	before := size()
	removeKeys(node.Labels, traces.Labels)
	removeKeys(node.Annotations, traces.Annotations)
	for mark, key := range traces.MarkedAnnotations {
		if hasKey(node.Annotations, mark) {
			removeKeys(node.Annotations, []string{key, mark})
		}
	}
	node.Finalizers = slices.DeleteFunc(node.Finalizers, func(f string) bool { return matchesAny(traces.Finalizers, f) })
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return matchesAny(traces.Taints, t.Key)
	})
	node.OwnerReferences = slices.DeleteFunc(node.OwnerReferences, func(o metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		return slices.Contains(traces.OwnerGroups, group)
	})
	return size() != before
}

func removeKeys(from map[string]string, keys []string) {
	for key := range from {
		if matchesAny(keys, key) {
			delete(from, key)
		}
	}
}

// matchesAny reports whether a key is in keys. An entry with a final slash matches all keys of that domain.
func matchesAny(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		return k == key || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k)
	})
}
