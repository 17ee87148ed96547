// Package permissions contains the permissions that each provider needs in its cloud, and prints them in the format of
// the cloud.
//
// The sources are providers/<name>/permissions.yaml. Go cannot embed files of another module, so hack/generate.sh
// copies them.
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

// Requirements are the permissions that a provider needs in its cloud.
type Requirements struct {
	// Provider is the name of the provider. Cloud is the display name of the provider's cloud for messages.
	Provider string `json:"provider"`
	Cloud    string `json:"cloud"`
	// Note describes the permissions if the cloud has no roles.
	Note string `json:"note,omitempty"`
	// AzureRole is set if the provider needs an Azure custom role.
	AzureRole *AzureRole `json:"azureRole,omitempty"`
	// Privileges is true if the actions are the privileges of a role in vCenter.
	Privileges bool `json:"privileges,omitempty"`
	// Actions lists the permissions that every class needs, under the names that the cloud uses.
	Actions []string `json:"actions,omitempty"`
	// Optional lists additional permissions, which only classes with certain fields in their providerSpec need.
	Optional []Optional `json:"optional,omitempty"`
}

// Optional lists the additional permissions that a class needs if its providerSpec contains Field.
type Optional struct {
	Field   string   `json:"field"`
	Actions []string `json:"actions"`
}

// Names returns the sorted names of the providers.
func Names() []string {
	entries, err := files.ReadDir("files")
	if err != nil {
		panic(fmt.Sprintf("embedded permissions: %v", err))
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// ForProvider looks up the permissions that a provider needs. If the name of the provider is unknown, the error lists
// the known names.
func ForProvider(provider string) (*Requirements, error) {
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
func Parse(text []byte) (*Requirements, error) {
	needs := &Requirements{}
	if err := yaml.UnmarshalStrict(text, needs); err != nil {
		return nil, fmt.Errorf("parse permissions: %w", err)
	}
	if (needs.Note == "") == (len(needs.Actions) == 0) {
		return nil, fmt.Errorf("the permissions of %s need either actions or a note", needs.Provider)
	}
	return needs, nil
}

// ActionsFor returns the actions that a class needs in the cloud if its providerSpec contains the given fields. The
// result contains each action once.
func (n *Requirements) ActionsFor(fields ...string) ([]string, error) {
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

func (n *Requirements) fields() []string {
	var fields []string
	for _, optional := range n.Optional {
		fields = append(fields, optional.Field)
	}
	return fields
}
