package orphans

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/permitted"
)

// confirmLive finds out of what has no Machine whether its Node is Ready, and what the classes say of its removal. Of
// those the API server is asked: a process that begins with an old view of a class does not know that most instances
// were orphaned. A class whose status somebody has emptied does not show that either: a process that has seen nothing
// yet asks the Ledger as well.
func (c *Collector) confirmLive(ctx context.Context, state *State, scopes map[string]*scope) error {
	state.NodeReady, state.Confirmed = map[string]string{}, map[string]bool{}
	orphans := state.orphans()
	if len(orphans) == 0 {
		return nil
	}
	list := &v1beta1.MachineClassList{}
	if err := c.Live.List(ctx, list, client.InNamespace(c.Rules.Namespace)); err != nil {
		return fmt.Errorf("list what the classes say: %w", err)
	}
	confirmed := map[types.UID]bool{}
	for i := range list.Items {
		class := &list.Items[i]
		confirmed[class.UID], _ = confirmation(class, state.Now)
		if class.Spec.Provider == c.Cloud.Name() && blockedReason(class) == v1beta1.ReasonMostInstancesOrphaned {
			state.Blocked = true
		}
	}
	if state.Before == nil && c.Ledger != nil {
		remembered, err := c.Ledger.MostOrphaned(ctx, c.Cloud.Name(), c.Rules.Namespace)
		if err != nil {
			return err
		}
		state.Blocked = state.Blocked || remembered
	}
	for _, d := range orphans {
		state.Confirmed[d.ID] = slices.ContainsFunc(scopes[d.ID].sources, func(source client.Object) bool {
			return confirmed[source.GetUID()]
		}) || state.deletedByForce(&d.Instance)
		if len(d.Parts) > 0 {
			continue
		}
		nodes, err := c.nodesOf(ctx, &d.Instance)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if isReady(node) {
				state.NodeReady[d.ID] = node.Name
			}
		}
	}
	return nil
}

// confirmation reports whether a person lets orphans that were found with an object be removed now. invalid says what
// is wrong with what the person wrote.
func confirmation(source client.Object, now time.Time) (confirmed bool, invalid string) {
	value, set := source.GetAnnotations()[v1beta1.AnnotationRemoveOrphansUntil]
	if !set {
		return false, ""
	}
	invalid = permitted.Until(value, now, v1beta1.MaxOrphanRemoval)
	return invalid == "", invalid
}
