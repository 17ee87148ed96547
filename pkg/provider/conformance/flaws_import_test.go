package conformance

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

func importing(change func(req provider.ImportRequest, out *provider.ImportedSpec)) func(*broken) {
	return func(b *broken) {
		b.imports = func(ctx context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
			out, err := b.correct.Import(ctx, req)
			if err == nil {
				change(req, &out)
			}
			return out, err
		}
	}
}

func locating(change func([]provider.LocatedInstance) []provider.LocatedInstance) func(*broken) {
	return func(b *broken) {
		b.locate = func(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
			all, err := b.correct.Locate(ctx, req)
			return change(all), err
		}
	}
}

func retagging(b *broken, ctx context.Context, credentials provider.Credentials, providerID string,
	removed ...string) error {
	return b.retag(ctx, credentials, providerID, removed, func(map[string]string) error { return nil })
}

func importFlaws() []flaw {
	machinistTags := []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine}
	return []flaw{
		{caseName: "ImportLocates", name: "spells IDs in another way", rule: "Locate finds",
			with: locating(func(all []provider.LocatedInstance) []provider.LocatedInstance {
				for i := range all {
					all[i].Instance.ProviderID = strings.ToUpper(all[i].Instance.ProviderID)
				}
				return all
			})},
		{caseName: "ImportLocates", name: "returns an instance twice", rule: "2 times",
			with: locating(func(all []provider.LocatedInstance) []provider.LocatedInstance { return append(all, all...) })},
		{caseName: "ImportLocates", name: "does not know the machine", rule: "Locate returns the old machine",
			with: locating(func(all []provider.LocatedInstance) []provider.LocatedInstance {
				for i := range all {
					all[i].Machine, all[i].MachineUID = "", ""
				}
				return all
			})},
		{caseName: "ImportLocates", name: "returns too many facts", rule: "Locate returns facts of",
			with: locating(func(all []provider.LocatedInstance) []provider.LocatedInstance {
				for i := range all {
					all[i].Facts = make([]byte, maxFacts+1)
				}
				return all
			})},
		{caseName: "ImportMakesValidSpec", name: "omits the kind", rule: "Validate of the imported class",
			with: importing(func(_ provider.ImportRequest, out *provider.ImportedSpec) { out.Spec = []byte(`{"size":"small"}`) })},
		{caseName: "ImportMakesValidSpec", name: "changes the size", rule: "Update with the class imported from",
			with: importing(func(_ provider.ImportRequest, out *provider.ImportedSpec) {
				out.Spec = []byte(strings.Replace(string(out.Spec), "small", "large", 1))
			})},
		{caseName: "ImportMakesValidSpec", name: "reports a loss without need", rule: "Loss",
			with: importing(func(_ provider.ImportRequest, out *provider.ImportedSpec) {
				out.Findings = append(out.Findings, provider.Finding{Level: provider.FindingLoss, Code: "NotImplemented",
					Path: "size"})
			})},
		{caseName: "ImportReportsUnknownFields", name: "omits nested fields", rule: `"disk.conformanceSurprise"`,
			with: importing(func(_ provider.ImportRequest, out *provider.ImportedSpec) {
				out.Findings = slices.DeleteFunc(out.Findings, func(f provider.Finding) bool {
					return strings.Contains(f.Path, ".")
				})
			})},
		{caseName: "ImportRefusesUnreadable", name: "ignores errors", rule: "Import of", with: func(b *broken) {
			b.imports = func(ctx context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
				out, _ := b.correct.Import(ctx, req)
				return out, nil
			}
		}},
		{caseName: "ImportIsPure", name: "asks the cloud", rule: "Import while the cloud does not answer", with: func(b *broken) {
			b.imports = func(ctx context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
				if _, err := b.correct.Locate(ctx, provider.LocateRequest{Legacy: req.Legacy}); err != nil {
					return provider.ImportedSpec{}, err
				}
				return b.correct.Import(ctx, req)
			}
		}},
		{caseName: "ImportIsPure", name: "returns a random size", rule: "returns another providerSpec", with: importing(
			func(_ provider.ImportRequest, out *provider.ImportedSpec) {
				out.Spec, _ = json.Marshal(machineSpec{APIVersion: "fake/v1", Kind: "Fake", Size: random(4)})
			})},
		{caseName: "ReleaseRemovesCollectorTags", name: "forgets the disk", rule: "disk/old-collector", with: func(b *broken) {
			b.release = func(ctx context.Context, req provider.ReleaseRequest) error {
				id, _ := idOf(req.ProviderID)
				return b.cloud.change(ctx, b.cloud.account, id, func(s *server) {
					s.tags = maps.Clone(s.tags)
					delete(s.tags, oldCollector)
				})
			}
		}},
		{caseName: "ReleaseRemovesCollectorTags", name: "never reports Collected", rule: "Locate reports Collected=false",
			with: locating(func(all []provider.LocatedInstance) []provider.LocatedInstance {
				for i := range all {
					all[i].IsCollected = false
				}
				return all
			})},
		{caseName: "ReleaseRemovesCollectorTags", name: "removes other tags too",
			rule: "after Release the instance", with: func(b *broken) {
				b.release = func(ctx context.Context, req provider.ReleaseRequest) error {
					return retagging(b, ctx, req.Class.Credentials, req.ProviderID, oldCollector, oldMachine, "team")
				}
			}},
		{caseName: "ReleaseRefusesOthers", name: "does not check the tags", rule: "Release of an instance without tags",
			with: func(b *broken) {
				b.release = func(ctx context.Context, req provider.ReleaseRequest) error {
					return retagging(b, ctx, req.Class.Credentials, req.ProviderID, oldCollector)
				}
			}},
		{caseName: "DisownUndoesAdopt", name: "keeps the tag of the name", rule: "after Adopt and Disown", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				return retagging(b, ctx, req.Class.Credentials, req.ProviderID, machinistTags[:2]...)
			}
		}},
		{caseName: "DisownUndoesAdopt", name: "fails the second time", rule: "Disown", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				in, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				if err == nil && in.OwnedBy(req.ClusterID, req.Machine) != nil {
					return in.OwnedBy(req.ClusterID, req.Machine)
				}
				return b.correct.Disown(ctx, req)
			}
		}},
		{caseName: "DisownRefusesOthers", name: "does not check the tags", rule: "Disown by", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				return retagging(b, ctx, req.Class.Credentials, req.ProviderID, machinistTags...)
			}
		}},
		{caseName: "DisownOfNothing", name: "fails without an instance",
			rule: "Disown of a deleted instance", with: func(b *broken) {
				b.disown = func(ctx context.Context, req provider.DisownRequest) error {
					if _, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID}); err != nil {
						return err
					}
					return b.correct.Disown(ctx, req)
				}
			}},
	}
}
