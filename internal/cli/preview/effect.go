package preview

import (
	"encoding/json"
	"fmt"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

// Effect classifies what happens to the machines when one field of a deployment changes.
type Effect string

const (
	// EffectRolls means that the change starts a rollout of a new revision.
	EffectRolls Effect = "NewRevision"
	// EffectInPlace means that the change is applied to existing machines and their Nodes.
	EffectInPlace Effect = "InPlace"
	// EffectNone means that the change does not affect any existing machine.
	EffectNone Effect = "Deployment"
)

const template = "spec.template."

// effectOf returns the effect of changing the field at the given path. To find out whether the change creates a new
// revision, effectOf copies the old template, sets only this field to its new value, and compares the two templates
// with the code of the controller.
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
		if !machinedeployment.SameRevision(&before.Template.Spec, mixed) {
			return EffectRolls, nil
		}
		return EffectInPlace, nil
	case strings.HasPrefix(path, template):
		return EffectInPlace, nil
	}
	return EffectNone, nil
}

// withField returns a copy of spec in which one field has the value that the field has in the argument other.
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
