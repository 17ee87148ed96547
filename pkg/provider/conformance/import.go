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
	taken := []need{needsImporter, needsAdopter, needsLegacies, needsLaunchLegacy}
	tags := append(slices.Clone(taken), needsTags)
	return []testCase{
		{name: "ImportLocates",
			rule: "Locate names an instance that the old system made once, with the old Machine's name and, if any, UID, " +
				"and describes it as Get does.",
			needs: taken, test: importLocates},
		{name: "ImportMakesValidSpec",
			rule: "Import of the old description makes a class that Validate accepts, without a Blocker or a Loss; Update of " +
				"an adopted instance has nothing to change.",
			needs: taken, test: importMakesValidSpec},
		{name: "ImportReportsUnknownFields", rule: "Import names each field that it does not know by its path, as a Loss, " +
			"also deep inside of the description.",
			needs: []need{needsImporter, needsLegacies}, test: importReportsUnknownFields},
		{name: "ImportRefusesUnreadable", rule: "Import of what is no description is InvalidArgument.",
			needs: []need{needsImporter, needsLegacies}, test: importRefusesUnreadable},
		{name: "ImportIsPure", rule: "Import makes no call to the cloud, and answers the same in every process.",
			needs: []need{needsImporter, needsLegacies, injecting(Hanging)}, test: importIsPure},
		{name: "ReleaseRemovesCollectorTags",
			rule: "Release, also repeated, removes what Locate calls collected from an adopted instance and its parts, and " +
				"leaves all else.",
			needs: tags, test: releaseRemovesCollectorTags},
		{name: "ReleaseRefusesOthers",
			rule: "Release of an instance that is not the machine's is FailedPrecondition and changes nothing, and of one " +
				"that does not exist NotFound.",
			needs: tags, test: releaseRefusesOthers},
		{name: "DisownUndoesAdopt",
			rule:  "Disown, also repeated, leaves the instance and its parts with the tags that they had before Adopt.",
			needs: tags, test: disownUndoesAdopt},
		{name: "DisownRefusesOthers",
			rule:  "Disown of an instance that is another machine's or cluster's is FailedPrecondition and changes nothing.",
			needs: tags, test: disownRefusesOthers},
		{name: "DisownOfNothing", rule: "Disown of an instance without Machinist's tags, and of none at all, succeeds and " +
			"changes nothing.",
			needs: tags, test: disownOfNothing},
	}
}

// old is an instance as an old system made it.
type old struct {
	*subject
	provider.Legacy
	machine string
	uid     types.UID
}

// launchLegacy makes an instance as an old system does.
func (t *trial) launchLegacy(source provider.Legacy) old {
	t.Helper()
	out := old{Legacy: source, machine: "legacy-" + random(4), uid: newUID()}
	id, remove, err := t.Cloud.LaunchLegacy(t.Context(), source, out.machine, out.uid)
	out.subject = t.visible(t.subject(), id, remove, err)
	return out
}

// located returns what Locate says of an instance, once it shows.
func (t *trial) located(o old) (found provider.Located) {
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
			t.fatalf("Locate names %s %d times", o.providerID, n)
		}
		return n == 1, fmt.Sprintf("it is not among %d", len(all))
	})
	return found
}

// adoptLegacy makes the instance the subject's.
func (t *trial) adoptLegacy(o old) {
	t.Helper()
	t.callAdopt(o)
	t.awaitVisible(o.subject)
}

// callAdopt calls Adopt until it succeeds.
func (t *trial) callAdopt(o old) {
	t.Helper()
	// Late reads must not make it look like one that was never adopted.
	t.await("Adopt of the old system's instance", func() (bool, string) {
		_, err := t.driver.Adopt(t.Context(), t.adoption(o.subject))
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error() // Machinist tries again.
		}
		t.must(err, "Adopt")
		return true, ""
	})
}

// tagsAt are those of the instance and its parts, past the driver.
func (t *trial) tagsAt(o old) map[string]string {
	t.Helper()
	tags, err := t.Cloud.Tags(t.Context(), o.providerID)
	t.must(err, "Cloud.Tags")
	return tags
}

func (t *trial) wantTags(o old, want map[string]string, after string) {
	t.Helper()
	if got := t.tagsAt(o); !maps.Equal(got, want) {
		t.Errorf("after %s the instance and its parts have the tags %v, want %v", after, got, want)
	}
}

func (t *trial) releasing(s *subject, source string) provider.ReleaseRequest {
	return provider.ReleaseRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID,
		Scope: s.scope, Source: source}
}

func (t *trial) disowning(s *subject) provider.DisownRequest {
	return provider.DisownRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID,
		Scope: s.scope}
}

// again repeats a call as Machinist does, which returns as soon as it has succeeded.
func (t *trial) again(attempted string, call func() error) {
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
		found := t.located(o)
		t.located(another)
		if found.Machine != o.machine && found.MachineUID != o.uid {
			t.Errorf("Locate names the old machine %q with UID %q, want name %q or UID %q", found.Machine, found.MachineUID,
				o.machine, o.uid)
		}
		if found.Machine != "" && found.Machine != o.machine || found.MachineUID != "" && found.MachineUID != o.uid {
			t.Errorf("Locate names another old machine: %q with UID %q, want %q with %q", found.Machine, found.MachineUID,
				o.machine, o.uid)
		}
		in, err := t.driver.Get(t.Context(), t.byID(o.subject))
		t.must(err, "Get by provider ID")
		if found.Instance.ProviderID != in.ProviderID || found.Instance.NodeName != in.NodeName {
			t.Errorf("Locate describes %s with node %q, Get %s with node %q", found.Instance.ProviderID,
				found.Instance.NodeName, in.ProviderID, in.NodeName)
		}
		if len(found.Facts) > maxFacts {
			t.Errorf("Locate's facts are %d bytes long, more than %d", len(found.Facts), maxFacts)
		}
	}
}

// maxFacts is how long those of an instance may be.
const maxFacts = 8 << 10

func importMakesValidSpec(t *trial) {
	for _, source := range t.Legacies {
		o := t.launchLegacy(source)
		imported, err := t.driver.Import(t.Context(), provider.ImportRequest{Legacy: source, Facts: t.located(o).Facts})
		t.must(err, "Import")
		for _, f := range imported.Findings {
			if f.Level != provider.FindingNote {
				t.Errorf("Import of %s: %s %s at %q: %s", source.Source, f.Level, f.Code, f.Path, f.Message)
			}
		}
		class := provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
		t.must(t.driver.Validate(t.Context(), provider.ValidateRequest{Class: class}), "Validate of what Import made")
		adoption := t.adoption(o.subject)
		adoption.Class = class
		t.again("Adopt with what Import made", func() error { _, err := t.driver.Adopt(t.Context(), adoption); return err })
		t.awaitVisible(o.subject)
		update := t.update(o.subject)
		update.Class, update.Version = class, ""
		t.await("Update of the adopted instance has nothing to do", func() (bool, string) {
			result, err := t.driver.Update(t.Context(), update)
			if code := provider.CodeOf(err); code == provider.Aborted || code == provider.FailedPrecondition {
				return false, err.Error() // Reads may be behind Adopt.
			}
			t.must(err, "Update with what Import made")
			if result.Outcome != provider.UpdateDone && result.Outcome != provider.UpdateInProgress {
				t.fatalf("Update with what Import made of %s is %s, want %s: %s", source.Source, result.Outcome,
					provider.UpdateDone, result.Reason)
			}
			return result.Outcome == provider.UpdateDone, string(result.Outcome)
		})
	}
}

func importReportsUnknownFields(t *trial) {
	const surprise = "conformanceSurprise"
	for _, source := range t.Legacies {
		var fields map[string]any
		t.must(json.Unmarshal(source.Spec.Reveal(), &fields), "read Config.Legacies")
		// The field at the top, and in each object of the description that has something else.
		for path, add := range surprises("", fields, surprise) {
			remove := add()
			data, err := json.Marshal(fields)
			t.must(err, "write the description")
			remove()
			surprising := source
			surprising.Spec = provider.NewSecret(data)
			imported, err := t.driver.Import(t.Context(), provider.ImportRequest{Legacy: surprising})
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

// surprises are the ways to add a field to a description, by its path. Objects with texts only may be maps, of which
// all keys are known, or wrapped values.
func surprises(path string, fields map[string]any, name string) map[string]func() (remove func()) {
	all := map[string]func() func(){}
	below := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	onlyTexts := true
	for key, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			onlyTexts = false
			maps.Copy(all, surprises(below(key), value, name))
		case string:
		default:
			onlyTexts = false
		}
	}
	if path == "" || !onlyTexts {
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
			"a text": `"a"`} {
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
		for _, d := range []*watched{t.driver, t.driver, t.restart()} {
			d.timeout = min(prompt, d.timeout)
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: source})
			if err != nil {
				t.fatalf("Import while the cloud does not answer: %v", err)
			}
			answer, err := json.Marshal(imported)
			t.must(err, "write Import's answer")
			if first != nil && string(answer) != string(first) {
				t.Errorf("Import of %s answers otherwise the second time: its specs or findings differ", source.Source)
			}
			first = answer
		}
	}
}

func releaseRemovesCollectorTags(t *trial) {
	for _, source := range t.Legacies {
		o := t.launchLegacy(source)
		collected := t.located(o).Collected
		t.adoptLegacy(o)
		before := t.tagsAt(o)
		want := maps.Clone(before)
		for _, key := range t.CollectorTags {
			delete(want, key)
		}
		if has := len(want) < len(before); collected != has {
			t.Errorf("Locate says %v of whether %s collects the instance; it has tags of Config.CollectorTags: %v", collected,
				source.Source, has)
		}
		for range 2 {
			t.again("Release", func() error { return t.driver.Release(t.Context(), t.releasing(o.subject, source.Source)) })
			t.wantTags(o, want, "Release")
		}
		t.carriesStill(o)
		t.await("Locate calls a released instance collected no more", func() (bool, string) {
			return !t.located(o).Collected, "it does"
		})
	}
}

// carriesStill holds the driver to an instance that is the subject's.
func (t *trial) carriesStill(o old) {
	t.Helper()
	t.await("the instance is the machine's", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(o.subject))
		t.must(err, "Get by provider ID")
		return in.OwnedBy(o.cluster, o.Machine) == nil, fmt.Sprintf("it is tagged for %q of %q", in.MachineUID, in.ClusterID)
	})
}

func releaseRefusesOthers(t *trial) {
	source := t.Legacies[0]
	o := t.launchLegacy(source)
	unowned := t.tagsAt(o)
	t.wantCode(t.driver.Release(t.Context(), t.releasing(o.subject, source.Source)), "Release of an instance without tags",
		provider.FailedPrecondition)
	t.wantTags(o, unowned, "a refused Release")
	t.adoptLegacy(o)
	before := t.tagsAt(o)
	for who, other := range t.others(o.subject) {
		err := t.driver.Release(t.Context(), t.releasing(other, source.Source))
		other.providerID = "" // Not to be deleted when the case ends.
		t.wantCode(err, "Release by "+who, provider.FailedPrecondition)
		t.wantTags(o, before, "Release by "+who)
	}
	t.delete(t.driver, t.deleteByID(o.subject))
	t.awaitGone(o.subject)
	t.wantCode(t.driver.Release(t.Context(), t.releasing(o.subject, source.Source)), "Release of what is gone",
		provider.NotFound)
}

func disownUndoesAdopt(t *trial) {
	for _, source := range t.Legacies {
		o := t.launchLegacy(source)
		before := t.tagsAt(o)
		for range 2 { // A migration that was aborted may be tried again.
			t.await("Adopt tags the instance", func() (bool, string) {
				t.callAdopt(o) // Reads that are behind Disown show tags which are not there any more.
				return !maps.Equal(before, t.tagsAt(o)), "Cloud.Tags shows no change"
			})
			t.awaitVisible(o.subject)
			for range 2 {
				t.again("Disown", func() error { return t.driver.Disown(t.Context(), t.disowning(o.subject)) })
				t.wantTags(o, before, "Adopt and Disown")
			}
		}
		t.await("List does not show what was disowned", func() (bool, string) {
			return len(t.listed(o.subject)) == 0, "it does"
		})
	}
}

func disownRefusesOthers(t *trial) {
	o := t.launchLegacy(t.Legacies[0])
	t.adoptLegacy(o)
	before := t.tagsAt(o)
	for who, other := range t.others(o.subject) {
		err := t.driver.Disown(t.Context(), t.disowning(other))
		other.providerID = "" // Not to be deleted when the case ends.
		t.wantCode(err, "Disown by "+who, provider.FailedPrecondition)
		t.wantTags(o, before, "Disown by "+who)
	}
}

func disownOfNothing(t *trial) {
	o := t.launchLegacy(t.Legacies[0])
	before := t.tagsAt(o)
	t.again("Disown of an instance that was not adopted", func() error {
		return t.driver.Disown(t.Context(), t.disowning(o.subject))
	})
	t.wantTags(o, before, "Disown of an instance that was not adopted")
	t.adoptLegacy(o)
	t.delete(t.driver, t.deleteByID(o.subject))
	t.awaitGone(o.subject)
	t.again("Disown of what is gone", func() error { return t.driver.Disown(t.Context(), t.disowning(o.subject)) })
}
