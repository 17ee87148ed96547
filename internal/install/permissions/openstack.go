package permissions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

type accessRule struct {
	Service string `json:"service"`
	Method  string `json:"method"`
	Path    string `json:"path"`
}

// AccessRules returns the actions as the JSON input of `openstack application credential create --access-rules`.
func (n *Requirements) AccessRules(actions []string) ([]byte, error) {
	if n.AzureRole != nil {
		return nil, fmt.Errorf("the cloud %s has no access rules", n.Cloud)
	}
	rules := make([]accessRule, len(actions))
	for i, action := range actions {
		words := strings.Fields(action)
		if len(words) != 3 || !strings.HasPrefix(words[2], "/") {
			return nil, fmt.Errorf("the permission %q of %s does not consist of a service, a method and a path", action, n.Provider)
		}
		rules[i] = accessRule{Service: words[0], Method: words[1], Path: words[2]}
	}
	// One rule per line makes diffs readable.
	var out bytes.Buffer
	for i, rule := range rules {
		text, err := json.Marshal(rule)
		if err != nil {
			return nil, err
		}
		separator := ",\n  "
		if i == 0 {
			separator = "[\n  "
		}
		out.WriteString(separator)
		out.Write(text)
	}
	out.WriteString("\n]\n")
	return out.Bytes(), nil
}
