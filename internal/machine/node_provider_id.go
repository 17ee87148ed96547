package machine

import (
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// Placeholders in spec.nodeProviderID of a class.
const (
	placeholderNodeName   = "<<NODE_NAME>>"
	placeholderInstanceID = "<<INSTANCE_ID>>"
	placeholderRegion     = "<<REGION>>"
)

// nodeProviderID returns the provider ID that the Node of an instance has by the form in its class. It returns "" if
// that equals the instance's own ID: if there is no form, or if the provider does not report a value that the form
// needs.
func nodeProviderID(form string, in *provider.Instance) string {
	values := []string{placeholderNodeName, in.NodeName,
		placeholderInstanceID, in.ProviderID[strings.LastIndex(in.ProviderID, "/")+1:], placeholderRegion, in.Region}
	for i := 0; i < len(values); i += 2 {
		if values[i+1] == "" && strings.Contains(form, values[i]) {
			return ""
		}
	}
	id := strings.NewReplacer(values...).Replace(form)
	if id == in.ProviderID {
		return ""
	}
	return id
}
