package tracing

import (
	"go.opentelemetry.io/otel/attribute"

	"machinist.dev/machinist/api/v1beta1"
)

// Keys of attributes. The keys follow OpenTelemetry's semantic conventions if these define a name.
const (
	keyNamespace  = attribute.Key("k8s.namespace.name")
	keyNode       = attribute.Key("k8s.node.name")
	keyZone       = attribute.Key("cloud.availability_zone")
	keyRegion     = attribute.Key("cloud.region")
	keyType       = attribute.Key("host.type")
	keyMachine    = attribute.Key("machinist.machine.name")
	keyUID        = attribute.Key("machinist.machine.uid")
	keyClass      = attribute.Key("machinist.class.name")
	keyProvider   = attribute.Key("machinist.provider")
	keyInstance   = attribute.Key("machinist.instance.id")
	keySet        = attribute.Key("machinist.machineset.name")
	keyDeployment = attribute.Key("machinist.machinedeployment.name")
	keyAttempt    = attribute.Key("machinist.attempt")
	keyReason     = attribute.Key("machinist.reason")
	keyCode       = attribute.Key("machinist.code")
	keyCall       = attribute.Key("machinist.cloud.call")
	keyLimited    = attribute.Key("machinist.rate_limit.seconds")
	keyRevision   = attribute.Key("machinist.revision")
)

// MachineAttributes returns the attributes of every span of a Machine. The attributes contain only names and IDs.
func MachineAttributes(m *v1beta1.Machine) []attribute.KeyValue {
	var all attributes
	all.add(keyNamespace, m.Namespace)
	all.add(keyMachine, m.Name)
	all.add(keyUID, string(m.UID))
	all.add(keySet, m.Labels[v1beta1.LabelMachineSet])
	all.add(keyInstance, m.Spec.ProviderID)
	provider := m.Labels[v1beta1.LabelProvider]
	if m.Spec.ClassRef != nil {
		all.add(keyClass, m.Spec.ClassRef.Name)
	}
	if i := m.Status.Instance; i != nil {
		all.add(keyZone, i.Zone)
		all.add(keyRegion, i.Region)
		all.add(keyType, i.Type)
		if provider == "" {
			provider = i.Provider
		}
	}
	all.add(keyProvider, provider)
	if ref := m.Status.NodeRef; ref != nil {
		all.add(keyNode, ref.Name)
	}
	if n := m.LaunchAttempt(); n > 1 {
		all = append(all, keyAttempt.Int64(int64(n)))
	}
	return all
}

// DeploymentAttributes returns the attributes of the spans of a rollout.
func DeploymentAttributes(d *v1beta1.MachineDeployment, revision int64) []attribute.KeyValue {
	var all attributes
	all.add(keyNamespace, d.Namespace)
	all.add(keyDeployment, d.Name)
	return append(all, keyRevision.Int64(revision))
}

type attributes []attribute.KeyValue

func (a *attributes) add(key attribute.Key, value string) {
	if value != "" {
		*a = append(*a, key.String(value))
	}
}
