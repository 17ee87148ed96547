// Package permissions knows what each provider has to be allowed at its cloud, from providers/<name>/permissions.yaml,
// and prints it as the cloud's own document.
//
// Go embeds no file of another module, so hack/generate.sh keeps copies of these files here.
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

// Needs are what a provider has to be allowed at its cloud.
type Needs struct {
	// Provider is the provider's name, Cloud what its cloud is called in a sentence.
	Provider string `json:"provider"`
	Cloud    string `json:"cloud"`
	// Note says in words what is needed where the cloud has no roles.
	Note string `json:"note,omitempty"`
	// AzureRole is set for providers whose role is a custom role of Azure.
	AzureRole *AzureRole `json:"azureRole,omitempty"`
	// Actions are what every class needs, in the cloud's own words.
	Actions []string `json:"actions,omitempty"`
	// Optional are what classes need that set a field of their providerSpec.
	Optional []Optional `json:"optional,omitempty"`
}

// Optional is what a class needs that sets a field of its providerSpec.
type Optional struct {
	Field   string   `json:"field"`
	Actions []string `json:"actions"`
}

// Names returns the providers whose needs are known, in order.
func Names() []string {
	entries, err := files.ReadDir("files")
	if err != nil {
		panic(fmt.Sprintf("embedded permissions: %v", err)) // A broken build, which the tests do not pass.
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Of returns the needs of a provider. An error about the name has those that are known.
func Of(provider string) (*Needs, error) {
	if !slices.Contains(Names(), provider) {
		return nil, fmt.Errorf("provider %q is not known here: known are %s; of another provider its own documents say what it needs",
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

// With returns the actions for classes that set the given fields of their providerSpec; AllFields stands for all of
// them. Each action is there once.
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
			return nil, fmt.Errorf("no further action is needed for the field %q; further actions are needed for %s", field,
				strings.Join(n.fields(), ", "))
		}
	}
	return actions, nil
}

// AllFields stands for all fields that need further actions.
const AllFields = "all"

func (n *Needs) fields() []string {
	var fields []string
	for _, optional := range n.Optional {
		fields = append(fields, optional.Field)
	}
	return fields
}
