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

// translation is one old description on its way to a providerSpec.
type translation struct {
	source string
	old    *legacy.Object
	// credentials are by our keys.
	credentials map[string][]byte
	facts       facts
	spec        machine.Spec
}

// Import implements provider.Importer. Where the description leaves something to the old system, the facts of an
// instance say what that chose.
func (d *Driver) Import(_ context.Context, req provider.ImportRequest) (provider.Imported, error) {
	t, err := newTranslation(req.Legacy, req.Facts)
	if err != nil {
		return provider.Imported{}, err
	}
	switch t.source {
	case provider.SourceGardener:
		t.gardener()
	case provider.SourceOpenShift:
		t.openShift()
	default:
		t.kubermatic()
	}
	t.common()
	raw, err := json.Marshal(t.spec)
	if err != nil {
		return provider.Imported{}, provider.Errorf(provider.Internal, "write the providerSpec")
	}
	out := provider.Imported{Spec: raw, Credentials: t.credentials, Findings: t.old.Findings()}
	_, err = machine.ParseSpec(raw)
	if e, invalid := errors.AsType[*provider.Error](err); invalid && !blocked(out.Findings) {
		out.Findings = append(out.Findings, provider.Finding{Level: provider.FindingBlocker,
			Code: provider.FindingInvalidField, Message: "the converted class is not valid: " + e.Field + ": " + e.Message})
	}
	return out, nil
}

func blocked(all []provider.Finding) bool {
	return slices.ContainsFunc(all, func(f provider.Finding) bool { return f.Level == provider.FindingBlocker })
}

// newTranslation reads a description, and the credentials in it and beside it.
func newTranslation(old provider.Legacy, known []byte) (*translation, error) {
	if !slices.Contains(provider.Sources(), old.Source) {
		return nil, provider.Errorf(provider.InvalidArgument, "the old system %.64q is unknown", old.Source)
	}
	if name := strings.ToLower(old.Provider); name != Name && name != "azuremachineproviderspec" {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description is for the provider %.64q, not for %q",
			old.Provider, Name)
	}
	object, err := legacy.Parse(old.Spec)
	if err != nil {
		return nil, err
	}
	t := &translation{source: old.Source, old: object, spec: machine.Spec{APIVersion: machine.APIVersion,
		Kind: machine.Kind}}
	if len(known) > 0 && json.Unmarshal(known, &t.facts) != nil {
		return nil, provider.Errorf(provider.InvalidArgument, "the facts are not those that Locate returns")
	}
	t.readCredentials(old.Credentials)
	return t, nil
}

// common is what all systems have alike.
func (t *translation) common() {
	if len(t.spec.NetworkInterfaces) == 1 && len(t.facts.Interfaces) > 0 {
		// The old system may have a default of its own.
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
		t.old.Add(provider.Finding{Level: provider.FindingBlocker, Code: provider.FindingRequiredField,
			Path: "sshPublicKey", Message: "neither the description nor an instance has an SSH key, without which Azure " +
				"makes no Linux machine; give sshPublicKey by an override"})
	}
}

// id is the resource ID of what an old description names; names that are IDs stay as they are. Empty stays empty.
func (t *translation) id(group, kind string, names ...string) string {
	if names[len(names)-1] == "" || strings.HasPrefix(strings.ToLower(names[0]), "/subscriptions/") {
		return names[0]
	}
	provider, kinds, _ := strings.Cut(kind, "/")
	path := "/subscriptions/" + string(t.credentials[keySubscription]) + "/resourceGroups/" + group + "/providers/" +
		provider
	for i, one := range strings.Split(kinds, "/") {
		path += "/" + one + "/" + names[i]
	}
	return path
}

// tags are those of new machines: never one by which an old collector would take them for its own, nor one that
// names an old Machine.
func (t *translation) tags(of *legacy.Object) map[string]string {
	all := of.Map("tags")
	for _, key := range slices.Sorted(maps.Keys(all)) {
		lower := strings.ToLower(key)
		switch {
		case strings.HasPrefix(lower, roleTags), strings.EqualFold(key, machineUIDTag):
			delete(all, key)
		case strings.HasPrefix(lower, "machinist"), strings.HasPrefix(lower, "azure"),
			strings.HasPrefix(lower, "microsoft"), strings.HasPrefix(lower, "windows"):
			delete(all, key)
			of.Add(provider.Finding{Level: provider.FindingLoss, Code: "ReservedTag", Path: of.Path("tags." + key),
				Message: "names of tags that begin so are Machinist's own or Azure's"})
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

// int32Of reads a number that the specification bounds far below what an int32 holds.
func int32Of(o *legacy.Object, name string) int32 {
	return int32(max(math.MinInt32, min(math.MaxInt32, o.Int(name)))) //nolint:gosec // It is between the two.
}
