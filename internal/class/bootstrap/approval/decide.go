package approval

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/platform/index"
)

// Facts are what is known of the world when a request is decided about.
type Facts struct {
	Now time.Time
	// Provider is the name of the provider that this process serves.
	Provider string
	// Token is the record of the requester's bootstrap token; nil if there is none.
	Token *bootstrap.Record
	// Machine is the one that the token was made for or, if a node asks, the one that it is; nil if there is none.
	Machine *v1beta1.Machine
	// OtherMachine is another Machine with a better claim to the name of the node; nil if there is none.
	OtherMachine *v1beta1.Machine
	// Node is the Node that has the name already; nil if there is none.
	Node *Node
	// Addresses are those that the provider gave the Machine's instance lately; nil if it was not asked.
	Addresses []corev1.NodeAddress
}

// Node is what counts of a Node.
type Node struct {
	UID        types.UID
	ProviderID string
}

// Decision is what becomes of a request.
type Decision struct {
	// Approve it, or leave it pending.
	Approve bool
	Reason  Reason
	// Message says why, for people. It may quote the request but holds no secret.
	Message string
	// Report is true when a person should know that the request is left pending.
	Report bool
}

func approve(reason Reason, format string, args ...any) Decision {
	return Decision{Approve: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// pass leaves a request pending, quietly.
func pass(reason Reason, format string, args ...any) Decision {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// refuse leaves a request pending, and reports it. It is no denial.
func refuse(reason Reason, format string, args ...any) Decision {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...), Report: true}
}

// request is what a CertificateSigningRequest asks for.
type request struct{ kubeletcsr.Request }

func readRequest(csr *certificatesv1.CertificateSigningRequest) request {
	return request{kubeletcsr.Read(csr)}
}

// Decide returns what becomes of a pending request. It never approves without a Machine of the provider.
func Decide(csr *certificatesv1.CertificateSigningRequest, f Facts) Decision {
	return readRequest(csr).decide(f)
}

func (r request) decide(f Facts) Decision {
	switch r.Kind {
	case kubeletcsr.Join:
		return r.decideJoin(f)
	case kubeletcsr.Renewal, kubeletcsr.Serving:
		return r.decideNode(f)
	}
	return pass(ReasonNotOurs, "the requester is no kubelet")
}

func (r request) decideJoin(f Facts) Decision {
	m := f.Machine
	switch {
	case f.Token == nil:
		return refuse(ReasonTokenUnknown, "bootstrap token %s does not exist any more", r.TokenID)
	case f.Token.Owner == "":
		return refuse(ReasonTokenUnknown, "bootstrap token %s was not made for a machine", r.TokenID)
	case m == nil:
		return pass(ReasonMachineGone, "the machine of bootstrap token %s is not known", r.TokenID)
	case !serves(f.Provider, m):
		return pass(ReasonNotOurs, "machine %s is another provider's", client.ObjectKeyFromObject(m))
	case !strings.HasPrefix(f.Token.Owner, string(m.UID)+"-"):
		return pass(ReasonMachineGone, "bootstrap token %s was made for a machine that is gone", r.TokenID)
	case !m.DeletionTimestamp.IsZero():
		return pass(ReasonMachineGone, "the machine is being deleted")
	}
	attempt := bootstrap.Attempt{Machine: client.ObjectKeyFromObject(m), UID: m.UID, Number: m.LaunchAttempt()}
	switch name := index.NodeName(m); {
	case f.Token.Owner != attempt.String():
		return refuse(ReasonTokenOutdated, "bootstrap token %s was made for a former attempt to launch the machine",
			r.TokenID)
	case !f.Now.Before(f.Token.Expires):
		return refuse(ReasonTokenExpired, "bootstrap token %s has expired", r.TokenID)
	case m.Status.NodeRef != nil:
		return refuse(ReasonAlreadyJoined, "the machine is node %s already; its bootstrap token was used once more",
			m.Status.NodeRef.Name)
	case r.Fault != "":
		return refuse(ReasonMalformed, "%s", r.Fault)
	case m.Status.Instance == nil:
		return pass(ReasonNameNotKnownYet, "the machine's instance is not recorded yet")
	case name == "":
		return refuse(ReasonNameUnknown, "the provider does not tell under which node name the instance registers")
	case r.Wanted != name:
		return refuse(ReasonWrongName, "it is for node %s, but the machine's is %s", quoted(r.Wanted), name)
	case f.OtherMachine != nil:
		return refuse(ReasonNameInUse, "machine %s has the node name %s, too, and had it first",
			client.ObjectKeyFromObject(f.OtherMachine), name)
	case f.Node != nil && (f.Node.ProviderID == "" || f.Node.ProviderID != m.NodeProviderID()):
		return refuse(ReasonNameInUse, "node %s exists already and is not this machine's", name)
	}
	return approve(ReasonMachineJoins, "The instance of machine %s joins with the machine's bootstrap token.",
		client.ObjectKeyFromObject(m))
}

func (r request) decideNode(f Facts) Decision {
	m := f.Machine
	switch {
	case m == nil:
		return pass(ReasonNotOurs, "node %s is no machine's", r.Requester)
	case !serves(f.Provider, m):
		return pass(ReasonNotOurs, "node %s is a machine of another provider", r.Requester)
	case m.Status.NodeRef == nil || m.Status.NodeRef.Name != r.Requester:
		return pass(ReasonNotPairedYet, "the machine is not paired with node %s yet", r.Requester)
	case f.Node == nil || f.Node.UID != m.Status.NodeRef.UID:
		return pass(ReasonNotPairedYet, "the machine is paired with another node of the name %s", r.Requester)
	case r.Fault != "":
		return refuse(ReasonMalformed, "%s", r.Fault)
	case r.Kind == kubeletcsr.Renewal:
		return approve(ReasonNodeRenews, "The node of machine %s renews its client certificate.",
			client.ObjectKeyFromObject(m))
	}
	others := r.others(f.Addresses)
	switch {
	case others != "" && f.Addresses == nil:
		return pass(ReasonAddressesNotKnown, "the addresses of the machine's instance are not known")
	case others != "":
		return refuse(ReasonUnknownAddress,
			"it is also for %s, which the provider does not know as an address of the instance", quoted(others))
	}
	return approve(ReasonNodeServes, "The node of machine %s serves under its own addresses.",
		client.ObjectKeyFromObject(m))
}

// others returns the first name to serve under that is neither the node's nor among the addresses.
func (r request) others(addresses []corev1.NodeAddress) string {
	names, ips := []string{r.Requester}, []netip.Addr(nil)
	for _, a := range addresses {
		switch a.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				ips = append(ips, ip.Unmap())
			}
		default:
			names = append(names, a.Address)
		}
	}
	for _, name := range r.DNS {
		if !slices.Contains(names, name) {
			return name
		}
	}
	for _, ip := range r.IPs {
		if !slices.Contains(ips, ip) {
			return ip.String()
		}
	}
	return ""
}

// serves reports whether the Machine is the provider's, by the label that each has before its instance is asked for.
func serves(provider string, m *v1beta1.Machine) bool {
	name := m.Labels[v1beta1.LabelProvider]
	if name == "" && m.Status.Instance != nil {
		name = m.Status.Instance.Provider
	}
	return name != "" && name == provider
}

// quoted makes a name from a request fit for a message.
func quoted(name string) string {
	const most = 80
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}
