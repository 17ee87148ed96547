package approval

// Reason is why a request is approved or left pending, in CamelCase.
type Reason string

// Reasons of Approved on a CertificateSigningRequest.
const (
	// ReasonMachineJoins surfaces when a Machine's instance requests its first certificate.
	ReasonMachineJoins Reason = "MachineJoins"
	// ReasonNodeRenews surfaces when a Machine's Node requests a client certificate with its current one.
	ReasonNodeRenews Reason = "NodeRenews"
	// ReasonNodeServes surfaces when a Machine's Node requests a serving certificate for its own addresses.
	ReasonNodeServes Reason = "NodeServes"
)

// Reasons for which a CertificateSigningRequest is left pending and nothing is reported: it does not concern a Machine
// of this provider, or it may be approved later.
const (
	// ReasonNotOurs surfaces for a request whose requester does not belong to a Machine of this provider.
	ReasonNotOurs Reason = "NotOurs"
	// ReasonMachineGone surfaces when the Machine of the token is being deleted or no longer exists.
	ReasonMachineGone Reason = "MachineGone"
	// ReasonNameNotKnownYet surfaces while the instance is not recorded in the Machine's status.
	ReasonNameNotKnownYet Reason = "NameNotKnownYet"
	// ReasonNotPairedYet surfaces while the requesting Node is not the one in its Machine's status.nodeRef, or nothing
	// proves that it is the Machine's.
	ReasonNotPairedYet Reason = "NotPairedYet"
	// ReasonInstanceNotKnown surfaces while the name and the addresses of the instance are not known, because the provider
	// was not asked for them or did not answer.
	ReasonInstanceNotKnown Reason = "InstanceNotKnown"
)

// Reasons for which a CertificateSigningRequest is left pending and an event is recorded on the Machine.
const (
	// ReasonMalformed surfaces for a request that differs from the requests of kubelets.
	ReasonMalformed Reason = "Malformed"
	// ReasonTokenUnknown surfaces when the requester's token no longer exists, or was not created for a Machine.
	ReasonTokenUnknown Reason = "TokenUnknown"
	// ReasonTokenOutdated surfaces when the token was created for an earlier attempt to launch the Machine.
	ReasonTokenOutdated Reason = "TokenOutdated"
	// ReasonTokenExpired surfaces when the token has expired.
	ReasonTokenExpired Reason = "TokenExpired"
	// ReasonAlreadyJoined surfaces when the Machine has a Node already and its token is used again.
	ReasonAlreadyJoined Reason = "AlreadyJoined"
	// ReasonNameUnknown surfaces when the provider does not report the node name of the instance.
	ReasonNameUnknown Reason = "NameUnknown"
	// ReasonWrongName surfaces when the request is for a node name that is not the Machine's, by its status or by the
	// provider.
	ReasonWrongName Reason = "WrongName"
	// ReasonNameInUse surfaces when the node name belongs to another Machine of the namespace, or to a Node that is not
	// the Machine's.
	ReasonNameInUse Reason = "NameInUse"
	// ReasonUnknownAddress surfaces when a serving certificate is requested for an address that is not the instance's.
	ReasonUnknownAddress Reason = "UnknownAddress"
	// ReasonGuestAddress surfaces when a serving certificate is requested for an address that only the guest reports, and
	// that is not in a range of --approve-guest-addresses.
	ReasonGuestAddress Reason = "GuestAddress"
)

// Reasons of events on a Machine about the certificates of its kubelet.
const (
	// EventReason surfaces when a request that an administrator should know about is left pending. The message contains
	// one of the reasons above.
	EventReason = "CertificateNotApproved"
)
