package orphans

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/platform/permitted"
)

// confirmLive reads what permits or prevents removals: the readiness of Nodes, and the conditions of classes at the API
// server. A stale class could hide that most instances were orphaned. An administrator may also have cleared the status
// of the class. So in its first pass, a process reads the Ledger as well.
func (c *Collector) confirmLive(ctx context.Context, state *State, scopes map[string]*scope,
	unlisted []ledger.FailedList) error {
	state.NodeReady, state.ConfirmedIDs = map[string]string{}, map[string]bool{}
	orphans := state.orphans()
	if len(orphans) == 0 {
		return nil
	}
	list := &v1beta1.MachineClassList{}
	if err := c.LiveClient.List(ctx, list, client.InNamespace(c.Rules.Namespace)); err != nil {
		return fmt.Errorf("list the classes: %w", err)
	}
	confirmed := map[types.UID]bool{}
	for i := range list.Items {
		class := &list.Items[i]
		confirmed[class.UID], _ = confirmation(class, state.Now)
		if class.Spec.Provider == c.Cloud.Name() && blockedReason(class) == v1beta1.ReasonMostInstancesOrphaned {
			state.IsBlocked = true
		}
	}
	incomplete := map[string]bool{}
	for _, u := range unlisted {
		incomplete[namespaceIn(u.Source)] = true
	}
	if state.PreviousObservations == nil && c.Ledger != nil {
		remembered, err := c.Ledger.MostOrphaned(ctx, c.Cloud.Name(), c.Rules.Namespace)
		if err != nil {
			return err
		}
		state.IsBlocked = state.IsBlocked || remembered
	}
	for _, d := range orphans {
		s, namespace := scopes[d.ID], namespaceOf(&d.Instance)
		state.ConfirmedIDs[d.ID] = slices.ContainsFunc(s.sources, func(source client.Object) bool {
			return confirmed[source.GetUID()] && s.confirms(source, namespace, incomplete)
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

// confirmation reports whether the annotation remove-orphans-until of a class or Machine permits the removal of orphans
// that were found with its credentials. If the value of the annotation is invalid, the second result is the reason.
func confirmation(source client.Object, now time.Time) (confirmed bool, invalid string) {
	value, set := source.GetAnnotations()[v1beta1.AnnotationRemoveOrphansUntil]
	if !set {
		return false, ""
	}
	invalid = permitted.Check(value, now, v1beta1.MaxOrphanRemoval)
	return invalid == "", invalid
}
