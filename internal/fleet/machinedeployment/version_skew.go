package machinedeployment

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/versionskew"
)

// versionWait returns the reason and the message if the wanted version must not be rolled out now.
func (p *pass) versionWait(ctx context.Context, v *view) (reason, message string) {
	if v.step.blocked != "" {
		return v1beta1.ReasonVersionStepMissing, v.step.blocked
	}
	if message = p.versionSkew(ctx, v); message != "" {
		return v1beta1.ReasonVersionSkew, message
	}
	return "", ""
}

// isVersionWait reports whether a rollout with this reason waits for another version.
func isVersionWait(reason string) bool {
	return reason == v1beta1.ReasonVersionSkew || reason == v1beta1.ReasonVersionStepMissing
}

// versionSkew returns why the target cluster does not support the wanted version, or "" if it does or its version is
// unknown. versionSkew reads the cluster's version only if machines would get another version. A step to a later
// version may be too old, because it brings the machines closer to the version of the cluster.
func (p *pass) versionSkew(ctx context.Context, v *view) string {
	version := v.step.deployment.Spec.Template.Spec.Version
	if p.ServerVersion == nil || version == "" || !v.mayStartRevision() || allowsVersionSkew(p.deployment) ||
		!v.changesVersion(version) {
		return ""
	}
	server := p.ServerVersion(ctx)
	violation := versionskew.Violation(version, server)
	if violation != "" && !v.step.isLast && !versionskew.IsNewer(version, server) {
		return ""
	}
	if violation != "" {
		p.requeueIn(versionskew.Poll) // A new version of the API server triggers no event.
	}
	return violation
}

func allowsVersionSkew(d metav1.Object) bool {
	_, allowed := d.GetAnnotations()[v1beta1.AnnotationAllowVersionSkew]
	return allowed
}

// changesVersion reports whether a rollout would create the first machines or change the version of machines. Only such
// a rollout can increase the version skew.
func (v *view) changesVersion(version string) bool {
	others := 0
	for i, set := range v.state.Sets {
		if i == v.currentIndex || ceiling(set) == 0 {
			continue
		}
		others++
		if v.sets[i].Spec.Template.Spec.Version != version {
			return true
		}
	}
	return others == 0 && v.currentIndex < 0
}
