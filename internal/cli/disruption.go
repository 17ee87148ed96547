package cli

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// disruptions computes how many disruptions the budgets of a namespace still allow. The string explains a missing
// permission. There are no budgets if the cluster does not serve their kind.
func (c *Cluster) disruptions(ctx context.Context, namespace string, now time.Time) (*disruption.View, string, error) {
	var budgets v1beta1.MachineDisruptionBudgetList
	switch err := c.List(ctx, &budgets, client.InNamespace(namespace)); {
	case err == nil, meta.IsNoMatchError(err), isUnknownResource(err):
	case apierrors.IsForbidden(err):
		return disruption.NewView(nil, nil, nil, now), "You may not list disruption budgets, so they are left out.", nil
	default:
		return nil, "", c.Explain(err)
	}
	if len(budgets.Items) == 0 {
		return disruption.NewView(nil, nil, nil, now), "", nil
	}
	var list v1beta1.MachineList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, "", c.Explain(err)
	}
	machines := make([]*v1beta1.Machine, len(list.Items))
	for i := range list.Items {
		machines[i] = &list.Items[i]
	}
	parsed := make([]*disruption.Budget, len(budgets.Items))
	for i := range budgets.Items {
		parsed[i], _ = disruption.Parse(&budgets.Items[i]) // An invalid budget allows no disruptions.
	}
	return disruption.NewView(parsed, machines, nil, now), "", nil
}
