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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
)

// Facts holds the information for the decision about a request.
type Facts struct {
	Now time.Time
	// Provider is the name of the provider of this process.
	Provider string
	// Token is the requester's bootstrap token, or nil.
	Token *bootstrap.Record
	// Machine is the Machine of the token or of the requesting node, or nil.
	Machine *v1beta1.Machine
	// OtherMachine is a Machine with the same node name that takes precedence, or nil.
	OtherMachine *v1beta1.Machine
	// Node is the Node with the node name, or nil.
	Node *corev1.Node
	// ReportedInstance is the provider's last valid answer about the instance, or nil.
	ReportedInstance *ReportedInstance
	// GuestRanges are the IP ranges in which addresses that only the guest reports are approved.
	GuestRanges []netip.Prefix
	// ReservedNames are the names and addresses of the API server, and the denied ranges.
	ReservedNames ReservedNames
}

// ReportedInstance is what the provider reports about an instance.
type ReportedInstance struct {
	// NodeName is the name that the instance's Node will have, or "" if unknown.
	NodeName string
	// Addresses are the instance's names and addresses, or nil if unknown. GuestAddresses are those that only the guest
	// has reported.
	Addresses, GuestAddresses []corev1.NodeAddress
}

// Decision is the result of Decide for a request.
type Decision struct {
	// Approve is false if the request must stay pending.
	Approve bool
	Reason  Reason
	// Message explains the decision to users. The message may quote the request but contains no secret.
	Message string
	// Report means that an event tells administrators why the request stays pending.
	Report bool
}

func approve(reason Reason, format string, args ...any) Decision {
	return Decision{Approve: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func ignore(reason Reason, format string, args ...any) Decision {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// refuse returns the decision to leave a request pending and to report it. The request is not denied.
func refuse(reason Reason, format string, args ...any) Decision {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...), Report: true}
}

type request struct{ kubeletcsr.Request }

func readRequest(csr *certificatesv1.CertificateSigningRequest) request {
	return request{kubeletcsr.Read(csr)}
}

// Decide returns whether a pending request is approved, and why. Decide approves only requests of the provider's
// Machines.
func Decide(csr *certificatesv1.CertificateSigningRequest, f Facts) Decision {
	return readRequest(csr).decide(f)
}

func (r request) decide(f Facts) Decision {
	switch r.Kind {
	case kubeletcsr.KindJoin:
		return r.decideJoin(f)
	case kubeletcsr.KindRenewal, kubeletcsr.KindServing:
		return r.decideNode(f)
	}
	return ignore(ReasonNotOurs, "the requester is not a kubelet")
}

func (r request) decideJoin(f Facts) Decision {
	m := f.Machine
	switch {
	case f.Token == nil:
		return refuse(ReasonTokenUnknown, "bootstrap token %s no longer exists", r.TokenID)
	case f.Token.Owner == "":
		return refuse(ReasonTokenUnknown, "bootstrap token %s was not created for a machine", r.TokenID)
	case m == nil:
		return ignore(ReasonMachineGone, "the machine of bootstrap token %s was not found", r.TokenID)
	case !servedBy(f.Provider, m):
		return ignore(ReasonNotOurs, "machine %s belongs to another provider", client.ObjectKeyFromObject(m))
	case !strings.HasPrefix(f.Token.Owner, string(m.UID)+"-"):
		return ignore(ReasonMachineGone, "bootstrap token %s was created for a machine that no longer exists", r.TokenID)
	case !m.DeletionTimestamp.IsZero():
		return ignore(ReasonMachineGone, "the machine is being deleted")
	}
	attempt := bootstrap.Attempt{Machine: client.ObjectKeyFromObject(m), UID: m.UID, Number: m.LaunchAttempt()}
	switch name := index.NodeName(m); {
	case f.Token.Owner != attempt.String():
		return refuse(ReasonTokenOutdated, "bootstrap token %s was created for an earlier attempt to launch the machine",
			r.TokenID)
	case !f.Now.Before(f.Token.ExpiryTime):
		return refuse(ReasonTokenExpired, "bootstrap token %s has expired", r.TokenID)
	case m.Status.NodeRef != nil:
		return refuse(ReasonAlreadyJoined, "the machine has already joined as node %s, and its bootstrap token was used again",
			m.Status.NodeRef.Name)
	case r.Fault != "":
		return refuse(ReasonMalformed, "%s", r.Fault)
	case m.Status.Instance == nil:
		return ignore(ReasonNameNotKnownYet, "the machine's status does not contain its instance yet")
	case name == "":
		return refuse(ReasonNameUnknown, "the provider does not report the node name of the machine's instance")
	case r.RequestedNode != name:
		return refuse(ReasonWrongName, "the request is for node %s, but the machine's node name is %s", quote(r.RequestedNode), name)
	case f.OtherMachine != nil:
		return refuse(ReasonNameInUse, "machine %s also has the node name %s and takes precedence",
			client.ObjectKeyFromObject(f.OtherMachine), name)
	case f.Node != nil && !nodemark.Proves(m, f.Node):
		return refuse(ReasonNameInUse, "node %s already exists and does not belong to this machine", name)
	// The name in the status proves nothing, because other clients may write the status.
	case f.ReportedInstance == nil:
		return ignore(ReasonInstanceNotKnown, "the provider has not confirmed the node name of the machine's instance")
	case f.ReportedInstance.NodeName == "":
		return refuse(ReasonNameUnknown, "the provider does not report the node name of the machine's instance")
	case f.ReportedInstance.NodeName != name:
		return refuse(ReasonWrongName, "the request is for node %s, but the provider reports that the machine's instance "+
			"registers as node %s", quote(r.RequestedNode), quote(f.ReportedInstance.NodeName))
	}
	return approve(ReasonMachineJoins, "The instance of machine %s joins with the machine's bootstrap token.",
		client.ObjectKeyFromObject(m))
}

func (r request) decideNode(f Facts) Decision {
	m := f.Machine
	switch {
	case m == nil:
		return ignore(ReasonNotOurs, "node %s does not belong to a machine", r.Requester)
	case !servedBy(f.Provider, m):
		return ignore(ReasonNotOurs, "node %s belongs to a machine of another provider", r.Requester)
	case m.Status.NodeRef == nil || m.Status.NodeRef.Name != r.Requester:
		return ignore(ReasonNotPairedYet, "the machine is not paired with node %s yet", r.Requester)
	case f.Node == nil || f.Node.UID != m.Status.NodeRef.UID || !nodemark.Proves(m, f.Node):
		return ignore(ReasonNotPairedYet, "the machine is paired with another node named %s", r.Requester)
	case r.Fault != "":
		return refuse(ReasonMalformed, "%s", r.Fault)
	case r.Kind == kubeletcsr.KindRenewal:
		return approve(ReasonNodeRenews, "The node of machine %s renews its client certificate.",
			client.ObjectKeyFromObject(m))
	}
	if reserved := f.ReservedNames.find(r); reserved != "" {
		return refuse(ReasonReservedAddress, "the request includes %s, which is the API server, the local host, a wildcard, "+
			"or in a range of --deny-serving-addresses of the provider. With such a certificate, the node could take the place "+
			"of another server", quote(reserved))
	}
	var reported ReportedInstance
	if f.ReportedInstance != nil {
		reported = *f.ReportedInstance
	}
	switch unknown, fromGuest := r.unknownName(reported, f.GuestRanges); {
	case unknown != "" && reported.Addresses == nil:
		return ignore(ReasonInstanceNotKnown, "the addresses of the machine's instance are not known")
	case fromGuest:
		return refuse(ReasonGuestAddress, "the request includes %s, which only the guest reports as an address of the "+
			"instance, and a guest can report any address. If the address is right, approve the request. Machinist approves "+
			"the addresses of guests only in the ranges of --approve-guest-addresses of the provider", quote(unknown))
	case unknown != "":
		return refuse(ReasonUnknownAddress,
			"the request includes %s, which the provider does not report as an address of the instance", quote(unknown))
	}
	return approve(ReasonNodeServes, "The node of machine %s requests a serving certificate for its own addresses.",
		client.ObjectKeyFromObject(m))
}

// unknownName returns a DNS name or IP address that does not provably belong to the node, or "". A node may use its own
// name, what the provider reports, and IP addresses from the guest in the ranges. fromGuest means that the guest
// reports all names and addresses without proof.
func (r request) unknownName(reported ReportedInstance, guestRanges []netip.Prefix) (unknown string, fromGuest bool) {
	names, ips := split(reported.Addresses)
	guestNames, guestIPs := split(reported.GuestAddresses)
	names = append(names, r.Requester)
	for _, name := range r.DNS {
		switch {
		case slices.Contains(names, name):
		case !slices.Contains(guestNames, name):
			return name, false
		default:
			unknown, fromGuest = name, true
		}
	}
	for _, ip := range r.IPs {
		inRange := func(p netip.Prefix) bool { return p.Contains(ip) }
		switch {
		case slices.Contains(ips, ip):
		case !slices.Contains(guestIPs, ip):
			return ip.String(), false
		case !slices.ContainsFunc(guestRanges, inRange):
			unknown, fromGuest = ip.String(), true
		}
	}
	return unknown, fromGuest
}

func split(addresses []corev1.NodeAddress) (names []string, ips []netip.Addr) {
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
	return names, ips
}

// servedBy reports whether the Machine belongs to the provider. Every Machine with an instance has the provider's
// label, because the label is written before the instance is created.
func servedBy(provider string, m *v1beta1.Machine) bool {
	name := m.Labels[v1beta1.LabelProvider]
	if name == "" && m.Status.Instance != nil {
		name = m.Status.Instance.Provider
	}
	return name != "" && name == provider
}

func quote(name string) string {
	const maxLength = 80
	if len(name) > maxLength {
		name = name[:maxLength] + "…"
	}
	return fmt.Sprintf("%q", name)
}
