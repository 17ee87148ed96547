package permissions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// AzureRole is an Azure custom role without its actions.
type AzureRole struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// AzureScope limits where a role can be assigned.
type AzureScope struct {
	// Subscription is the ID of a subscription. The field is required.
	Subscription string
	// ResourceGroups restrict the role. Empty means the whole subscription.
	ResourceGroups []string
	// Name is unique in the tenant. The default is the name in the file.
	Name string
}

type azureDocument struct {
	Name             string
	IsCustom         bool
	Description      string
	Actions          []string
	NotActions       []string
	AssignableScopes []string
}

// AzureDocument returns a custom role with the actions as JSON.
func (n *Requirements) AzureDocument(actions []string, scope AzureScope) ([]byte, error) {
	switch {
	case n.AzureRole == nil:
		return nil, fmt.Errorf("the cloud %s has no Azure custom roles", n.Cloud)
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
