package preview

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
)

// addWarnings adds the API server's warnings as notes. A warning about the version is a blocker if the version is new
// or not rolled out yet.
func (p *Plan) addWarnings(f Fleet) {
	for _, text := range f.Warnings {
		violation, found := strings.CutPrefix(text, "spec.template.spec.version: ")
		if found && changesVersion(f) {
			p.addBlocker(v1beta1.ReasonVersionSkew, "the target cluster supports the version", "The rollout waits: "+violation+".")
			continue
		}
		p.Notes = append(p.Notes, "Warning: "+text)
	}
}

func changesVersion(f Fleet) bool {
	if f.OldDeployment == nil || f.OldDeployment.Spec.Template.Spec.Version != f.NewDeployment.Spec.Template.Spec.Version {
		return true
	}
	rolling := meta.FindStatusCondition(f.OldDeployment.Status.Conditions, v1beta1.ConditionRollingOut)
	return rolling != nil && rolling.Reason == v1beta1.ReasonVersionSkew
}
