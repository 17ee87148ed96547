package machine

import (
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// These placeholders can be used in spec.nodeProviderID of a class.
const (
	placeholderNodeName   = "<<NODE_NAME>>"
	placeholderInstanceID = "<<INSTANCE_ID>>"
	placeholderRegion     = "<<REGION>>"
)

// nodeProviderID returns the provider ID of the Node of an instance. The class defines the form of this ID. The result
// is "" if the Node has the instance's own ID. This is so if the class defines no form, or if the provider does not
// report a value that the form contains.
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
