package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

func importCases() []testCase {
	launched := []requirement{needsImporter, needsAdopter, needsLegacies, needsLaunchLegacy}
	tags := append(slices.Clone(launched), needsTags)
	return []testCase{
		{name: "ImportLocates",
			rule: "Locate returns each instance of the old system once. It reports the name of the old Machine and, if " +
				"known, its UID. It describes the instance as Get does.",
			needs: launched, test: importLocates},
		{name: "ImportMakesValidSpec",
			rule: "Import translates the old description into a class that Validate accepts, without a Blocker or a Loss. " +
				"After that, Update has nothing to change on the adopted instance.",
			needs: launched, test: importMakesValidSpec},
		{name: "ImportReportsUnknownFields",
			rule:  "Import reports each unknown field as a Loss with its path, also in nested objects.",
			needs: []requirement{needsImporter, needsLegacies}, test: importReportsUnknownFields},
		{name: "ImportRefusesUnreadable", rule: "Import fails with InvalidArgument if its input is not a description.",
			needs: []requirement{needsImporter, needsLegacies}, test: importRefusesUnreadable},
		{name: "ImportIsPure", rule: "Import makes no call to the cloud, and returns the same result in every process.",
			needs: []requirement{needsImporter, needsLegacies, injecting(Hanging)}, test: importIsPure},
		{name: "ReleaseRemovesCollectorTags",
			rule: "Release removes the tags of the old collector from an adopted instance and its parts, and keeps all " +
				"others. It can be repeated.",
			needs: tags, test: releaseRemovesCollectorTags},
		{name: "ReleaseRefusesOthers",
			rule: "Release of an instance of another owner fails with FailedPrecondition and changes nothing. Release of an " +
				"instance that does not exist fails with NotFound.",
			needs: tags, test: releaseRefusesOthers},
		{name: "DisownUndoesAdopt",
			rule:  "Disown restores the tags that the instance and its parts had before Adopt. It can be repeated.",
			needs: tags, test: disownUndoesAdopt},
		{name: "DisownRefusesOthers",
			rule:  "Disown of an instance of another machine or cluster fails with FailedPrecondition and changes nothing.",
			needs: tags, test: disownRefusesOthers},
		{name: "DisownOfNothing",
			rule: "Disown of an instance without Machinist's tags, or of an instance that does not exist, succeeds and " +
				"changes nothing.",
			needs: tags, test: disownOfNothing},
	}
}

type legacyInstance struct {
	*subject
	provider.Legacy
	machine string
	uid     types.UID
}

func (t *trial) launchLegacy(source provider.Legacy) legacyInstance {
	t.Helper()
	out := legacyInstance{Legacy: source, machine: "legacy-" + random(4), uid: newUID()}
	id, remove, err := t.Cloud.LaunchLegacy(t.Context(), source, out.machine, out.uid)
	out.subject = t.awaitLaunched(t.subject(), id, remove, err)
	return out
}

// locate returns what Locate reports about an instance, as soon as the instance is visible.
func (t *trial) locate(o legacyInstance) (found provider.LocatedInstance) {
	t.Helper()
	t.await("Locate finds "+o.providerID, func() (bool, string) {
		all, err := t.driver.Locate(t.Context(), provider.LocateRequest{Legacy: o.Legacy})
		t.must(err, "Locate")
		n := 0
		for _, one := range all {
			if one.Instance.ProviderID == o.providerID {
				found = one
				n++
			}
		}
		if n > 1 {
			t.fatalf("Locate returns %s %d times", o.providerID, n)
		}
		return n == 1, fmt.Sprintf("the instance is not among the %d instances that Locate returns", len(all))
	})
	return found
}

func (t *trial) adoptLegacy(o legacyInstance) {
	t.Helper()
	t.retryAdopt(o)
	t.awaitVisible(o.subject)
}

func (t *trial) retryAdopt(o legacyInstance) {
	t.Helper()
	// A late read must not show the instance without its adoption.
	t.await("Adopt of the old system's instance", func() (bool, string) {
		_, err := t.driver.Adopt(t.Context(), t.adoptRequest(o.subject))
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error() // Machinist retries.
		}
		t.must(err, "Adopt")
		return true, ""
	})
}

func (t *trial) cloudTags(o legacyInstance) map[string]string {
	t.Helper()
	tags, err := t.Cloud.Tags(t.Context(), o.providerID)
	t.must(err, "Cloud.Tags")
	return tags
}

func (t *trial) wantTags(o legacyInstance, want map[string]string, after string) {
	t.Helper()
	if got := t.cloudTags(o); !maps.Equal(got, want) {
		t.Errorf("after %s the instance and its parts have the tags %v, want %v", after, got, want)
	}
}

func (t *trial) releaseRequest(s *subject, source string) provider.ReleaseRequest {
	return provider.ReleaseRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID,
		Scope: s.scope, Source: source}
}

func (t *trial) disownRequest(s *subject) provider.DisownRequest {
	return provider.DisownRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID,
		Scope: s.scope}
}

func (t *trial) retry(attempted string, call func() error) {
	t.Helper()
	t.await(attempted+" succeeds", func() (bool, string) {
		err := call()
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error()
		}
		t.must(err, "%s", attempted)
		return true, ""
	})
}

func importLocates(t *trial) {
	for _, source := range t.Legacies {
		o, another := t.launchLegacy(source), t.launchLegacy(source)
		found := t.locate(o)
		t.locate(another)
		if found.Machine != o.machine && found.MachineUID != o.uid {
			t.Errorf("Locate returns the old machine %q with UID %q, want name %q or UID %q", found.Machine, found.MachineUID,
				o.machine, o.uid)
		}
		if found.Machine != "" && found.Machine != o.machine || found.MachineUID != "" && found.MachineUID != o.uid {
			t.Errorf("Locate returns another old machine: %q with UID %q, want %q with %q", found.Machine, found.MachineUID,
				o.machine, o.uid)
		}
		in, err := t.driver.Get(t.Context(), t.byID(o.subject))
		t.must(err, "Get by provider ID")
		if found.Instance.ProviderID != in.ProviderID || found.Instance.NodeName != in.NodeName {
			t.Errorf("Locate describes %s with node %q, but Get describes %s with node %q", found.Instance.ProviderID,
				found.Instance.NodeName, in.ProviderID, in.NodeName)
		}
		if len(found.Facts) > maxFacts {
			t.Errorf("Locate returns facts of %d bytes, more than %d", len(found.Facts), maxFacts)
		}
	}
}

const maxFacts = 8 << 10

func importMakesValidSpec(t *trial) {
	for _, source := range t.Legacies {
		o := t.launchLegacy(source)
		imported, err := t.driver.Import(t.Context(), provider.ImportRequest{Legacy: source, Facts: t.locate(o).Facts})
		t.must(err, "Import")
		for _, f := range imported.Findings {
			if f.Level != provider.FindingNote {
				t.Errorf("Import of %s: %s %s at %q: %s", source.Source, f.Level, f.Code, f.Path, f.Message)
			}
		}
		class := provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
		t.must(t.driver.Validate(t.Context(), provider.ValidateRequest{Class: class}), "Validate of the imported class")
		adoption := t.adoptRequest(o.subject)
		adoption.Class = class
		t.retry("Adopt with the imported class", func() error { _, err := t.driver.Adopt(t.Context(), adoption); return err })
		t.awaitVisible(o.subject)
		update := t.updateRequest(o.subject)
		update.Class, update.Version = class, ""
		t.await("Update of the adopted instance answers Done", func() (bool, string) {
			result, err := t.driver.Update(t.Context(), update)
			if code := provider.CodeOf(err); code == provider.Aborted || code == provider.FailedPrecondition {
				return false, err.Error() // Reads may lag behind Adopt.
			}
			t.must(err, "Update with the imported class")
			if result.Outcome != provider.UpdateDone && result.Outcome != provider.UpdateInProgress {
				t.fatalf("Update with the class imported from %s is %s, want %s: %s", source.Source, result.Outcome,
					provider.UpdateDone, result.Reason)
			}
			return result.Outcome == provider.UpdateDone, string(result.Outcome)
		})
	}
}

func importReportsUnknownFields(t *trial) {
	const unknown = "conformanceSurprise"
	for _, source := range t.Legacies {
		var fields map[string]any
		t.must(json.Unmarshal(source.Spec.Reveal(), &fields), "decode Config.Legacies")
		// Add the unknown field at the top and in each nested object, except in objects of strings.
		for path, add := range unknownFields("", fields, unknown) {
			remove := add()
			data, err := json.Marshal(fields)
			t.must(err, "encode the description")
			remove()
			changed := source
			changed.Spec = provider.NewSecret(data)
			imported, err := t.driver.Import(t.Context(), provider.ImportRequest{Legacy: changed})
			t.must(err, "Import with the unknown field %s", path)
			if !slices.ContainsFunc(imported.Findings, func(f provider.Finding) bool {
				return f.Path == path && f.Level == provider.FindingLoss && f.Code == provider.FindingUnknownField
			}) {
				t.Errorf("Import of %s does not report the unknown field %q as a Loss %s", source.Source, path,
					provider.FindingUnknownField)
			}
		}
	}
}

// unknownFields returns functions that add an unknown field to a description. The key of each function is the path of
// the field that it adds. The function skips nested objects that contain only strings: they may be maps with
// arbitrary keys, or wrapped values.
func unknownFields(path string, fields map[string]any, name string) map[string]func() (remove func()) {
	all := map[string]func() func(){}
	below := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	onlyStrings := true
	for key, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			onlyStrings = false
			maps.Copy(all, unknownFields(below(key), value, name))
		case string:
		default:
			onlyStrings = false
		}
	}
	if path == "" || !onlyStrings {
		all[below(name)] = func() func() {
			fields[name] = map[string]any{"nested": true}
			return func() { delete(fields, name) }
		}
	}
	return all
}

func importRefusesUnreadable(t *trial) {
	for _, source := range t.Legacies {
		for what, spec := range map[string]string{"nothing": "", "null": "null", "a list": "[]", "half an object": `{"a":`,
			"a string": `"a"`} {
			unreadable := source
			unreadable.Spec = provider.NewSecret([]byte(spec))
			_, err := t.driver.Import(t.Context(), provider.ImportRequest{Legacy: unreadable})
			t.wantCode(err, "Import of "+what, provider.InvalidArgument)
		}
	}
}

func importIsPure(t *trial) {
	t.inject(Fault{Kind: Hanging})
	for _, source := range t.Legacies {
		var first []byte
		for _, d := range []*checkedDriver{t.driver, t.driver, t.restart()} {
			d.timeout = min(maxReturnDelay, d.timeout)
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: source})
			if err != nil {
				t.fatalf("Import while the cloud does not answer: %v", err)
			}
			answer, err := json.Marshal(imported)
			t.must(err, "encode the answer of Import")
			if first != nil && string(answer) != string(first) {
				t.Errorf("Import of %s returns another providerSpec or other findings the second time", source.Source)
			}
			first = answer
		}
	}
}

func releaseRemovesCollectorTags(t *trial) {
	for _, source := range t.Legacies {
		o := t.launchLegacy(source)
		collected := t.locate(o).IsCollected
		t.adoptLegacy(o)
		before := t.cloudTags(o)
		want := maps.Clone(before)
		for _, key := range t.CollectorTags {
			delete(want, key)
		}
		if has := len(want) < len(before); collected != has {
			t.Errorf("Locate reports Collected=%v for an instance of %s; whether it has tags of Config.CollectorTags: %v",
				collected, source.Source, has)
		}
		for range 2 {
			t.retry("Release", func() error { return t.driver.Release(t.Context(), t.releaseRequest(o.subject, source.Source)) })
			t.wantTags(o, want, "Release")
		}
		t.awaitOwned(o)
		t.await("Locate no longer reports a released instance as collected", func() (bool, string) {
			return !t.locate(o).IsCollected, "it still does"
		})
	}
}

func (t *trial) awaitOwned(o legacyInstance) {
	t.Helper()
	t.await("the instance belongs to the machine", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(o.subject))
		t.must(err, "Get by provider ID")
		return in.OwnedBy(o.cluster, o.Machine) == nil,
			fmt.Sprintf("it is tagged for machine %q of cluster %q", in.MachineUID, in.ClusterID)
	})
}

func releaseRefusesOthers(t *trial) {
	source := t.Legacies[0]
	o := t.launchLegacy(source)
	unowned := t.cloudTags(o)
	t.wantCode(t.driver.Release(t.Context(), t.releaseRequest(o.subject, source.Source)), "Release of an instance without tags",
		provider.FailedPrecondition)
	t.wantTags(o, unowned, "a refused Release")
	t.adoptLegacy(o)
	before := t.cloudTags(o)
	for who, other := range t.foreignOwners(o.subject) {
		err := t.driver.Release(t.Context(), t.releaseRequest(other, source.Source))
		other.providerID = "" // Do not delete it when the case ends.
		t.wantCode(err, "Release by "+who, provider.FailedPrecondition)
		t.wantTags(o, before, "Release by "+who)
	}
	t.delete(t.driver, t.deleteByID(o.subject))
	t.awaitGone(o.subject)
	t.wantCode(t.driver.Release(t.Context(), t.releaseRequest(o.subject, source.Source)), "Release of a deleted instance",
		provider.NotFound)
}

func disownUndoesAdopt(t *trial) {
	for _, source := range t.Legacies {
		o := t.launchLegacy(source)
		before := t.cloudTags(o)
		for range 2 { // A migration may be aborted and tried again.
			t.await("Adopt tags the instance", func() (bool, string) {
				t.retryAdopt(o) // Reads that lag behind Disown may show tags that were already removed.
				return !maps.Equal(before, t.cloudTags(o)), "Cloud.Tags shows no change"
			})
			t.awaitVisible(o.subject)
			for range 2 {
				t.retry("Disown", func() error { return t.driver.Disown(t.Context(), t.disownRequest(o.subject)) })
				t.wantTags(o, before, "Adopt and Disown")
			}
		}
		t.await("List does not return a disowned instance", func() (bool, string) {
			return len(t.listed(o.subject)) == 0, "it still does"
		})
	}
}

func disownRefusesOthers(t *trial) {
	o := t.launchLegacy(t.Legacies[0])
	t.adoptLegacy(o)
	before := t.cloudTags(o)
	for who, other := range t.foreignOwners(o.subject) {
		err := t.driver.Disown(t.Context(), t.disownRequest(other))
		other.providerID = "" // Do not delete it when the case ends.
		t.wantCode(err, "Disown by "+who, provider.FailedPrecondition)
		t.wantTags(o, before, "Disown by "+who)
	}
}

func disownOfNothing(t *trial) {
	o := t.launchLegacy(t.Legacies[0])
	before := t.cloudTags(o)
	t.retry("Disown of an instance that was not adopted", func() error {
		return t.driver.Disown(t.Context(), t.disownRequest(o.subject))
	})
	t.wantTags(o, before, "Disown of an instance that was not adopted")
	t.adoptLegacy(o)
	t.delete(t.driver, t.deleteByID(o.subject))
	t.awaitGone(o.subject)
	t.retry("Disown of a deleted instance", func() error { return t.driver.Disown(t.Context(), t.disownRequest(o.subject)) })
}
