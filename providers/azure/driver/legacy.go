package driver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/azure/machine"
)

var _ provider.Importer = (*Driver)(nil)

// translation contains the input and the results of Import, which converts a description of an old system to a
// providerSpec.
type translation struct {
	source string
	old    *legacy.Object
	// credentials has the keys of this provider's Secret.
	credentials map[string][]byte
	facts       facts
	hasFacts    bool
	spec        machine.Spec
}

// Import implements provider.Importer. If the old description lacks a value because the old system chose a default,
// Import reads the value from the facts of an instance.
func (d *Driver) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	t, err := newTranslation(req.Legacy, req.Facts)
	if err != nil {
		return provider.ImportedSpec{}, err
	}
	switch t.source {
	case provider.SourceGardener:
		t.gardener()
	case provider.SourceOpenShift:
		t.openShift()
	case provider.SourceClusterAPI:
		t.clusterAPI()
	default:
		t.kubermatic()
	}
	t.setCommonFields()
	raw, err := json.Marshal(t.spec)
	if err != nil {
		return provider.ImportedSpec{}, provider.Errorf(provider.Internal, "write the providerSpec")
	}
	out := provider.ImportedSpec{Spec: raw, Credentials: t.credentials, Findings: t.old.Findings()}
	_, err = machine.ParseSpec(raw)
	if e, invalid := errors.AsType[*provider.Error](err); invalid && !blocked(out.Findings) {
		out.Findings = append(out.Findings, provider.Finding{Level: provider.FindingBlocker,
			Code: provider.FindingInvalidField, Message: "the translated class is not valid: " + e.Field + ": " + e.Message})
	}
	return out, nil
}

func blocked(all []provider.Finding) bool {
	return slices.ContainsFunc(all, func(f provider.Finding) bool { return f.Level == provider.FindingBlocker })
}

// newTranslation reads credentials from the description and from the old system's Secret.
func newTranslation(old provider.Legacy, knownFacts []byte) (*translation, error) {
	if !slices.Contains(provider.Sources(), old.Source) {
		return nil, provider.Errorf(provider.Unimplemented, "the old system %.64q is unknown", old.Source)
	}
	if name := strings.ToLower(old.Provider); !slices.Contains([]string{Name, "azuremachineproviderspec", "azuremachine"},
		name) {
		return nil, provider.Errorf(provider.Unimplemented, "the old description is for the provider %.64q, not for %q",
			old.Provider, Name)
	}
	object, err := legacy.Parse(old.Spec)
	if err != nil {
		return nil, err
	}
	t := &translation{source: old.Source, old: object, spec: machine.Spec{APIVersion: machine.APIVersion,
		Kind: machine.Kind}}
	if len(knownFacts) > 0 && json.Unmarshal(knownFacts, &t.facts) != nil {
		return nil, provider.Errorf(provider.InvalidArgument, "the facts do not have the format that Locate returns")
	}
	t.hasFacts = len(knownFacts) > 0
	t.readCredentials(old.Credentials)
	return t, nil
}

// setCommonFields sets the fields that all systems have.
func (t *translation) setCommonFields() {
	if len(t.spec.NetworkInterfaces) == 1 && len(t.facts.Interfaces) > 0 {
		// The default of the old system may differ from the default of this provider.
		n := &t.spec.NetworkInterfaces[0]
		n.IPForwarding = n.IPForwarding || t.facts.Interfaces[0].IPForwarding
	}
	if t.spec.Image.Plan == nil && t.spec.Image.Marketplace != nil {
		t.spec.Image.Plan = t.facts.Plan
	}
	if t.spec.Image == (machine.Image{Plan: t.spec.Image.Plan}) && t.facts.Image != nil {
		t.spec.Image = *t.facts.Image
		if t.facts.Plan != nil {
			t.spec.Image.Plan = t.facts.Plan
		}
	}
	if t.spec.AdminUsername == "" {
		t.spec.AdminUsername = t.facts.AdminUsername
	}
	if t.spec.SSHPublicKey == "" {
		t.spec.SSHPublicKey = t.facts.SSHPublicKey
	}
	t.spec.SSHPublicKey = strings.TrimSpace(t.spec.SSHPublicKey)
	if t.spec.SSHPublicKey == "" {
		// The old systems generate a key pair for each instance and discard the private key.
		t.spec.SSHPublicKey = unusableSSHKey()
		t.old.Add(provider.Finding{Level: provider.FindingNote, Code: "GeneratedSSHKey", Path: "sshPublicKey",
			Message: "neither the description nor an instance has an SSH key, but Azure requires one; new machines get a " +
				"key whose private key is unknown; to log in, set sshPublicKey with an override"})
	}
}

// id returns the resource ID for names in an old description. IDs and empty names are returned unchanged.
func (t *translation) id(group, kind string, names ...string) string {
	if names[len(names)-1] == "" || strings.HasPrefix(strings.ToLower(names[0]), "/subscriptions/") {
		return names[0]
	}
	provider, kinds, _ := strings.Cut(kind, "/")
	path := "/subscriptions/" + string(t.credentials[keySubscription]) + "/resourceGroups/" + group + "/providers/" +
		provider
	for i, segment := range strings.Split(kinds, "/") {
		path += "/" + segment + "/" + names[i]
	}
	return path
}

// tags returns the tags of new machines. The method omits the tags that a garbage collector of the old system looks
// for, and the UID of an old Machine.
func (t *translation) tags(description *legacy.Object, field string) map[string]string {
	all := description.Map(field)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		lower := strings.ToLower(key)
		switch {
		case strings.HasPrefix(lower, roleTags), strings.EqualFold(key, machineUIDTag):
			delete(all, key)
		case strings.HasPrefix(lower, "machinist"), strings.HasPrefix(lower, "azure"),
			strings.HasPrefix(lower, "microsoft"), strings.HasPrefix(lower, "windows"):
			delete(all, key)
			description.Add(provider.Finding{Level: provider.FindingLoss, Code: "ReservedTag",
				Path:    description.Path(field + "." + key),
				Message: "tag names with this prefix are reserved for Machinist or Azure"})
		}
	}
	if t.source != provider.SourceGardener {
		for key, text := range t.facts.ClusterTags {
			if _, given := all[key]; !given {
				if all == nil {
					all = map[string]string{}
				}
				all[key] = text
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// int32Of limits a number to the range of int32, which exceeds all limits of the specification.
func int32Of(o *legacy.Object, name string) int32 {
	return int32(max(math.MinInt32, min(math.MaxInt32, o.Int(name)))) //nolint:gosec // The limits above ensure the range.
}
