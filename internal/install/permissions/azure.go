package permissions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// AzureRole is what a custom role of Azure has beside its actions.
type AzureRole struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// AzureScope is where a role can be assigned.
type AzureScope struct {
	// Subscription is the ID of a subscription. Required.
	Subscription string
	// ResourceGroups restrict the role to these groups of the subscription. Empty means the whole subscription.
	ResourceGroups []string
	// Name of the role, unique in its tenant. Default: that of the file.
	Name string
}

// azureDocument is the document that `az role definition create` takes.
type azureDocument struct {
	Name             string
	IsCustom         bool
	Description      string
	Actions          []string
	NotActions       []string
	AssignableScopes []string
}

// AzureDocument returns the custom role with these actions as JSON.
func (n *Needs) AzureDocument(actions []string, scope AzureScope) ([]byte, error) {
	switch {
	case n.AzureRole == nil:
		return nil, fmt.Errorf("%s has no custom roles of Azure", n.Cloud)
	case scope.Subscription == "":
		return nil, errors.New("the ID of the subscription is not set")
	}
	subscription := "/subscriptions/" + scope.Subscription
	scopes := []string{}
	for _, group := range scope.ResourceGroups {
		scopes = append(scopes, subscription+"/resourceGroups/"+group)
	}
	if len(scopes) == 0 {
		scopes = append(scopes, subscription)
	}
	document := azureDocument{Name: n.AzureRole.Name, IsCustom: true, Description: n.AzureRole.Description,
		Actions: actions, NotActions: []string{}, AssignableScopes: scopes}
	if scope.Name != "" {
		document.Name = scope.Name
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
