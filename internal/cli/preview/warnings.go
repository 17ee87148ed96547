package preview

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
)

// warnings notes what the API server warns of. A rollout waits for a version that the target cluster does not support
// if the change, or one before it that was not rolled out yet, is to that version.
func (p *Plan) warnings(f Fleet) {
	for _, text := range f.Warnings {
		violation, found := strings.CutPrefix(text, "spec.template.spec.version: ")
		if found && changesVersion(f) {
			p.hinder(v1beta1.ReasonVersionSkew, "the target cluster supports the version", "The rollout waits: "+violation+".")
			continue
		}
		p.Notes = append(p.Notes, "Warning: "+text)
	}
}

func changesVersion(f Fleet) bool {
	if f.Before == nil || f.Before.Spec.Template.Spec.Version != f.After.Spec.Template.Spec.Version {
		return true
	}
	rolling := meta.FindStatusCondition(f.Before.Status.Conditions, v1beta1.ConditionRollingOut)
	return rolling != nil && rolling.Reason == v1beta1.ReasonVersionSkew
}
