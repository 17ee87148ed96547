// Package permissions contains the permissions that each provider needs in its cloud. They come from the files
// providers/<name>/permissions.yaml. The package prints the permissions in the format of the cloud.
//
// Go cannot embed files of another module, so hack/generate.sh copies these files here.
package permissions

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed files/*.yaml
var files embed.FS

// Needs contains the permissions that a provider needs in its cloud.
type Needs struct {
	// Provider is the name of the provider. Cloud is the name of the provider's cloud, for use in a sentence.
	Provider string `json:"provider"`
	Cloud    string `json:"cloud"`
	// Note describes the permissions in words if the cloud has no roles.
	Note string `json:"note,omitempty"`
	// AzureRole is set only for providers that need an Azure custom role.
	AzureRole *AzureRole `json:"azureRole,omitempty"`
	// Actions are the permissions that every class needs, in the terms of the cloud.
	Actions []string `json:"actions,omitempty"`
	// Optional contains additional permissions for classes that set certain fields of their providerSpec.
	Optional []Optional `json:"optional,omitempty"`
}

// Optional contains the additional permissions for classes that set a field of their providerSpec.
type Optional struct {
	Field   string   `json:"field"`
	Actions []string `json:"actions"`
}

// Names returns the names of the providers with known permissions, in order.
func Names() []string {
	entries, err := files.ReadDir("files")
	if err != nil {
		panic(fmt.Sprintf("embedded permissions: %v", err)) // The build is broken. The tests detect that.
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Of returns the permissions of a provider. If the name is unknown, the error contains the known names.
func Of(provider string) (*Needs, error) {
	if !slices.Contains(Names(), provider) {
		return nil, fmt.Errorf("unknown provider %q: the known providers are %s; for the permissions of another provider, see its documentation",
			provider, strings.Join(Names(), ", "))
	}
	text, err := files.ReadFile(path.Join("files", provider+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the permissions of %s: %w", provider, err)
	}
	return Parse(text)
}

// Parse reads a file of permissions.
func Parse(text []byte) (*Needs, error) {
	needs := &Needs{}
	if err := yaml.UnmarshalStrict(text, needs); err != nil {
		return nil, fmt.Errorf("parse permissions: %w", err)
	}
	if (needs.Note == "") == (len(needs.Actions) == 0) {
		return nil, fmt.Errorf("the permissions of %s need either actions or a note", needs.Provider)
	}
	return needs, nil
}

// With returns the actions, without duplicates, for classes that set the given fields of their providerSpec.
// AllFields stands for all fields.
func (n *Needs) With(fields ...string) ([]string, error) {
	actions := slices.Clone(n.Actions)
	for _, field := range fields {
		found := false
		for _, optional := range n.Optional {
			if field != AllFields && field != optional.Field {
				continue
			}
			found = true
			for _, action := range optional.Actions {
				if !slices.Contains(actions, action) {
					actions = append(actions, action)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("the field %q needs no further actions; fields that do are %s", field,
				strings.Join(n.fields(), ", "))
		}
	}
	return actions, nil
}

// AllFields stands for all fields that need additional actions.
const AllFields = "all"

func (n *Needs) fields() []string {
	var fields []string
	for _, optional := range n.Optional {
		fields = append(fields, optional.Field)
	}
	return fields
}
