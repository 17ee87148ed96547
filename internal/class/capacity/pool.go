package capacity

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Pool identifies capacity in the cloud. If one class has no capacity, the other classes of its pool have none
// either.
type Pool struct {
	// account is the cloud account, or the namespace and the Secret of the credentials if the account is unknown.
	account, region, zone, instanceType string
	// name distinguishes the pools of one type in one zone, such as that of spot instances.
	name string
	// class is set if the class shares its capacity with no other class, as far as the provider knows.
	class client.ObjectKey
}

// PoolOf returns the pool of a class. The driver distinguishes pools by name (see provider.CapacityPoolOf). A class
// shares its pool only if the provider reports both the type and the place of its instances.
func PoolOf(class *v1beta1.MachineClass, name string) Pool {
	info := class.Status.NodeInfo
	if info == nil || info.InstanceType == "" || info.Region == "" && info.Zone == "" {
		return Pool{class: client.ObjectKeyFromObject(class)}
	}
	credentials := class.Namespace + "/"
	if ref := class.Spec.CredentialsRef; ref != nil {
		credentials += ref.Name
	}
	return Pool{account: cmp.Or(class.Status.Account, credentials), region: info.Region, zone: info.Zone,
		instanceType: info.InstanceType, name: name}
}
