package approval

// Reason is a CamelCase word that tells users why a request is approved or left pending.
type Reason string

// Reasons of Approved on a CertificateSigningRequest.
const (
	// ReasonMachineJoins surfaces when a Machine's instance requests its first certificate.
	ReasonMachineJoins Reason = "MachineJoins"
	// ReasonNodeRenews surfaces when a Machine's Node uses its current client certificate to request the next one.
	ReasonNodeRenews Reason = "NodeRenews"
	// ReasonNodeServes surfaces when a Machine's Node requests a serving certificate for its own addresses.
	ReasonNodeServes Reason = "NodeServes"
)

// Reasons for which a CertificateSigningRequest is left pending and nothing is reported: the request does not concern a
// Machine of this provider, or it may be approved later.
const (
	// ReasonNotOurs surfaces for a request whose requester does not belong to a Machine of this provider.
	ReasonNotOurs Reason = "NotOurs"
	// ReasonMachineGone surfaces when the Machine for which the token was created is being deleted or no longer exists.
	ReasonMachineGone Reason = "MachineGone"
	// ReasonNameNotKnownYet surfaces while the instance is not recorded in the Machine's status.
	ReasonNameNotKnownYet Reason = "NameNotKnownYet"
	// ReasonNotPairedYet surfaces while status.nodeRef of the Machine does not name the requesting Node, or while the Node
	// does not provably belong to the Machine.
	ReasonNotPairedYet Reason = "NotPairedYet"
	// ReasonInstanceNotKnown surfaces while the name or the addresses of the instance are unknown, because the provider
	// has not been asked yet or has not answered.
	ReasonInstanceNotKnown Reason = "InstanceNotKnown"
)

// Reasons for which a CertificateSigningRequest is left pending and an event is recorded on the Machine.
const (
	// ReasonMalformed surfaces for a request that a kubelet would not send in this form.
	ReasonMalformed Reason = "Malformed"
	// ReasonTokenUnknown surfaces when the bootstrap token of the requester no longer exists, or was not created for a
	// Machine.
	ReasonTokenUnknown Reason = "TokenUnknown"
	// ReasonTokenOutdated surfaces when the token was created for an earlier attempt to launch the Machine.
	ReasonTokenOutdated Reason = "TokenOutdated"
	// ReasonTokenExpired surfaces when the token has expired.
	ReasonTokenExpired Reason = "TokenExpired"
	// ReasonAlreadyJoined surfaces when the token of a Machine is used although the Machine already has a Node.
	ReasonAlreadyJoined Reason = "AlreadyJoined"
	// ReasonNameUnknown surfaces when the provider does not report the node name of the instance.
	ReasonNameUnknown Reason = "NameUnknown"
	// ReasonWrongName surfaces when the node name in the request differs from the name in the Machine's status, or from
	// the name that the provider reports.
	ReasonWrongName Reason = "WrongName"
	// ReasonNameInUse surfaces when another Machine of the namespace has the same node name, or when a Node of another
	// machine has this name.
	ReasonNameInUse Reason = "NameInUse"
	// ReasonUnknownAddress surfaces when a serving certificate is requested for an address that the provider does not
	// report for the instance.
	ReasonUnknownAddress Reason = "UnknownAddress"
	// ReasonGuestAddress surfaces when a serving certificate is requested for an address that only the guest reports,
	// outside of the ranges of --approve-guest-addresses.
	ReasonGuestAddress Reason = "GuestAddress"
	// ReasonReservedAddress surfaces when a serving certificate is requested for a name or address of the API server, of
	// the local host, or in a range of --deny-serving-addresses.
	ReasonReservedAddress Reason = "ReservedAddress"
)

// Reasons of events on a Machine about the certificates of its kubelet.
const (
	// EventReason surfaces when a certificate request is left pending and an administrator may have to act. The message of
	// the event contains one of the reasons above.
	EventReason = "CertificateNotApproved"
)
