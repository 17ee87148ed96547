package main

import (
	"context"
	"crypto/rand"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
)

func TestConformance(t *testing.T) {
	folder := cloud{folder: t.TempDir()}
	spec := func(size string) []byte {
		return []byte(`{"apiVersion":"folder.example.com/v1","kind":"FolderMachine","size":"` + size + `"}`)
	}
	conformance.Run(t, conformance.Config{
		New:          func() (provider.Driver, error) { return &driver{cloud: folder}, nil },
		Class:        provider.Class{Spec: spec("small")},
		OtherSpec:    spec("large"),
		InvalidSpecs: []conformance.InvalidSpec{{Name: "an unknown size", Spec: spec("huge"), Field: "size"}},
		MinCases:     35,
		Cloud: conformance.Cloud{
			Resources: func(ctx context.Context) (names []string, err error) {
				machines, err := folder.list(ctx)
				for _, m := range machines {
					names = append(names, "machine/"+m.ID)
				}
				return names, err
			},
			Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
				m := machine{ID: rand.Text(), Name: "other", Size: "small", Tags: tags}
				return convert(m).ProviderID, func(ctx context.Context) error { return folder.delete(ctx, m.ID) },
					folder.create(ctx, m)
			},
		},
	})
}
