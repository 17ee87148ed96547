package conformance

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// importing changes what Import answers.
func importing(change func(req provider.ImportRequest, out *provider.Imported)) func(*broken) {
	return func(b *broken) {
		b.imports = func(ctx context.Context, req provider.ImportRequest) (provider.Imported, error) {
			out, err := b.correct.Import(ctx, req)
			if err == nil {
				change(req, &out)
			}
			return out, err
		}
	}
}

// locating changes what Locate answers.
func locating(change func([]provider.Located) []provider.Located) func(*broken) {
	return func(b *broken) {
		b.locate = func(ctx context.Context, req provider.LocateRequest) ([]provider.Located, error) {
			all, err := b.correct.Locate(ctx, req)
			return change(all), err
		}
	}
}

// retagging changes the tags of a server, whatever it has.
func retagging(b *broken, ctx context.Context, credentials provider.Credentials, providerID string,
	removed ...string) error {
	return b.retag(ctx, credentials, providerID, removed, func(map[string]string) error { return nil })
}

func importFlaws() []flaw {
	ours := []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine}
	return []flaw{
		{of: "ImportLocates", name: "spells IDs otherwise", rule: "Locate finds",
			with: locating(func(all []provider.Located) []provider.Located {
				for i := range all {
					all[i].Instance.ProviderID = strings.ToUpper(all[i].Instance.ProviderID)
				}
				return all
			})},
		{of: "ImportLocates", name: "names an instance twice", rule: "2 times",
			with: locating(func(all []provider.Located) []provider.Located { return append(all, all...) })},
		{of: "ImportLocates", name: "knows no machine", rule: "Locate names the old machine",
			with: locating(func(all []provider.Located) []provider.Located {
				for i := range all {
					all[i].Machine, all[i].MachineUID = "", ""
				}
				return all
			})},
		{of: "ImportLocates", name: "tells too much", rule: "Locate's facts",
			with: locating(func(all []provider.Located) []provider.Located {
				for i := range all {
					all[i].Facts = make([]byte, maxFacts+1)
				}
				return all
			})},
		{of: "ImportMakesValidSpec", name: "forgets the kind", rule: "Validate of what Import made",
			with: importing(func(_ provider.ImportRequest, out *provider.Imported) { out.Spec = []byte(`{"size":"small"}`) })},
		{of: "ImportMakesValidSpec", name: "makes another machine of it", rule: "Update with what Import made",
			with: importing(func(_ provider.ImportRequest, out *provider.Imported) {
				out.Spec = []byte(strings.Replace(string(out.Spec), "small", "large", 1))
			})},
		{of: "ImportMakesValidSpec", name: "loses what it could keep", rule: "Loss",
			with: importing(func(_ provider.ImportRequest, out *provider.Imported) {
				out.Findings = append(out.Findings, provider.Finding{Level: provider.FindingLoss, Code: "Tired", Path: "size"})
			})},
		{of: "ImportReportsUnknownFields", name: "leaves out what is nested", rule: `"disk.conformanceSurprise"`,
			with: importing(func(_ provider.ImportRequest, out *provider.Imported) {
				out.Findings = slices.DeleteFunc(out.Findings, func(f provider.Finding) bool {
					return strings.Contains(f.Path, ".")
				})
			})},
		{of: "ImportRefusesUnreadable", name: "makes something of nothing", rule: "Import of", with: func(b *broken) {
			b.imports = func(ctx context.Context, req provider.ImportRequest) (provider.Imported, error) {
				out, _ := b.correct.Import(ctx, req)
				return out, nil
			}
		}},
		{of: "ImportIsPure", name: "asks the cloud", rule: "Import while the cloud does not answer", with: func(b *broken) {
			b.imports = func(ctx context.Context, req provider.ImportRequest) (provider.Imported, error) {
				if _, err := b.correct.Locate(ctx, provider.LocateRequest{Legacy: req.Legacy}); err != nil {
					return provider.Imported{}, err
				}
				return b.correct.Import(ctx, req)
			}
		}},
		{of: "ImportIsPure", name: "draws lots", rule: "answers otherwise", with: importing(
			func(_ provider.ImportRequest, out *provider.Imported) {
				out.Spec, _ = json.Marshal(machineSpec{APIVersion: "fake/v1", Kind: "Fake", Size: random(4)})
			})},
		{of: "ReleaseRemovesCollectorTags", name: "forgets the disk", rule: "disk/old-collector", with: func(b *broken) {
			b.release = func(ctx context.Context, req provider.ReleaseRequest) error {
				id, _ := idOf(req.ProviderID)
				return b.cloud.change(ctx, b.cloud.account, id, func(s *server) {
					s.tags = maps.Clone(s.tags)
					delete(s.tags, oldCollector)
				})
			}
		}},
		{of: "ReleaseRemovesCollectorTags", name: "does not tell who is collected", rule: "Locate says false",
			with: locating(func(all []provider.Located) []provider.Located {
				for i := range all {
					all[i].Collected = false
				}
				return all
			})},
		{of: "ReleaseRemovesCollectorTags", name: "removes what is none of it", rule: "after Release the instance", with: func(b *broken) {
			b.release = func(ctx context.Context, req provider.ReleaseRequest) error {
				return retagging(b, ctx, req.Class.Credentials, req.ProviderID, oldCollector, oldMachine, "team")
			}
		}},
		{of: "ReleaseRefusesOthers", name: "does not check the tags", rule: "Release of an instance without tags",
			with: func(b *broken) {
				b.release = func(ctx context.Context, req provider.ReleaseRequest) error {
					return retagging(b, ctx, req.Class.Credentials, req.ProviderID, oldCollector)
				}
			}},
		{of: "DisownUndoesAdopt", name: "leaves the name", rule: "after Adopt and Disown", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				return retagging(b, ctx, req.Class.Credentials, req.ProviderID, ours[:2]...)
			}
		}},
		{of: "DisownUndoesAdopt", name: "fails the second time", rule: "Disown", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				in, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				if err == nil && in.OwnedBy(req.ClusterID, req.Machine) != nil {
					return in.OwnedBy(req.ClusterID, req.Machine)
				}
				return b.correct.Disown(ctx, req)
			}
		}},
		{of: "DisownRefusesOthers", name: "does not check the tags", rule: "Disown by", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				return retagging(b, ctx, req.Class.Credentials, req.ProviderID, ours...)
			}
		}},
		{of: "DisownOfNothing", name: "insists on an instance", rule: "Disown of what is gone", with: func(b *broken) {
			b.disown = func(ctx context.Context, req provider.DisownRequest) error {
				if _, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID}); err != nil {
					return err
				}
				return b.correct.Disown(ctx, req)
			}
		}},
	}
}
