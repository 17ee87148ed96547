package machineset

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// reboot requests the reboots of unhealthy machines. A reboot needs room in the budgets and counts against maxInFlight,
// like a replacement. A live read first confirms that the reason still applies.
func (p *pass) reboot(ctx context.Context, plan Plan) error {
	if len(plan.Reboot) == 0 {
		return nil
	}
	defer p.shared.remediating.Lock(fleetUID(p.state.Set))()
	if err := p.countInFlight(ctx); err != nil {
		return err
	}
	free := max(0, p.state.MaxInFlight-p.state.InFlight)
	tried, err := p.grant(ctx, plan, plan.Reboot[:min(len(plan.Reboot), free)])
	if err != nil {
		return err
	}
	requested, err := p.forEach("reboot", tried, func(cached *v1beta1.Machine) (done bool, err error) {
		var wrote error
		defer func() { p.Ledger.Settle(cached, wrote) }()
		m := &v1beta1.Machine{}
		if err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(cached), m); err != nil {
			return false, err
		}
		next, wanted := machinestate.NextRemediationReboot(m)
		if m.UID != cached.UID || !wanted || !remediable(m) || p.state.Recoveries.graceLeft(m, p.state.Now) > 0 ||
			!metav1.IsControlledBy(m, p.state.Set) {
			return false, nil
		}
		changed := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.AnnotationReboot, next.String())
		wrote = p.Client.Patch(ctx, changed, optimisticPatch(m))
		return true, wrote
	})
	// The cached machines do not show the requests yet.
	in, _ := p.shared.replacementsOf(p.state.Set.UID)
	for _, m := range requested {
		in = append(in.without(m.Name), m.Name)
	}
	p.shared.keepReplacements(p.state.Set.UID, in)
	if err == nil && len(requested) < len(tried) {
		p.markCacheStale()
	}
	return err
}

// rebootsInFlight counts the reboots for health checks that are in progress and are not in the list of replacements.
func rebootsInFlight(machines []*v1beta1.Machine, counted Replacements) (n int) {
	for _, m := range machines {
		if isRebootInFlight(m) && !slices.Contains(counted, m.Name) {
			n++
		}
	}
	return n
}

// isRebootInFlight reports whether a reboot that a health check requested has not ended yet. If the reboot
// did not help, and another reboot or a replacement is requested, it no longer counts.
func isRebootInFlight(m *v1beta1.Machine) bool {
	return machinestate.IsLive(m) && machinestate.LastRemediationReboot(m).Attempt > 0 && machinestate.IsRebootOpen(m) &&
		!remediable(m)
}
