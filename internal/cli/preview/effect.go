package preview

import (
	"encoding/json"
	"fmt"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

// Effect is what happens to the machines when a field of a deployment changes.
type Effect string

const (
	// EffectRolls means that the change creates a new revision and starts a rollout.
	EffectRolls Effect = "NewRevision"
	// EffectInPlace means that existing machines and their Nodes are changed.
	EffectInPlace Effect = "InPlace"
	// EffectNone means that no existing machine changes.
	EffectNone Effect = "Deployment"
)

const template = "spec.template."

// effectOf returns the effect of changing one field. effectOf changes only this field in a copy of the old template,
// and compares both templates in the same way as the controller.
func effectOf(path string, before, after *v1beta1.MachineDeploymentSpec) (Effect, error) {
	switch field, ok := strings.CutPrefix(path, template+"spec."); {
	case path == "spec.rolloutAfter":
		return EffectRolls, nil
	case ok:
		field, _, _ = strings.Cut(field, ".")
		mixed, err := withField(&before.Template.Spec, &after.Template.Spec, field)
		if err != nil {
			return "", err
		}
		if !machinedeployment.SameRevision(machinedeployment.Template{Spec: &before.Template.Spec},
			machinedeployment.Template{Spec: mixed}) {
			return EffectRolls, nil
		}
		return EffectInPlace, nil
	case strings.HasPrefix(path, template):
		return EffectInPlace, nil
	case strings.HasPrefix(path, "spec.placement.") && strings.HasSuffix(path, ".options"):
		// Only the set of all classes belongs to the revision, not their order or domain.
		spec := &before.Template.Spec
		if !machinedeployment.SameRevision(machinedeployment.Template{Spec: spec, Placement: before.Placement},
			machinedeployment.Template{Spec: spec, Placement: after.Placement}) {
			return EffectRolls, nil
		}
	}
	return EffectNone, nil
}

func withField(spec, other *v1beta1.MachineSpec, field string) (*v1beta1.MachineSpec, error) {
	fields := func(of *v1beta1.MachineSpec) (out map[string]json.RawMessage, err error) {
		text, err := json.Marshal(of)
		if err != nil {
			return nil, fmt.Errorf("compare the templates: %w", err)
		}
		return out, json.Unmarshal(text, &out)
	}
	a, err := fields(spec)
	if err != nil {
		return nil, err
	}
	b, err := fields(other)
	if err != nil {
		return nil, err
	}
	delete(a, field)
	if value, ok := b[field]; ok {
		a[field] = value
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("compare the templates: %w", err)
	}
	mixed := &v1beta1.MachineSpec{}
	return mixed, json.Unmarshal(text, mixed)
}
