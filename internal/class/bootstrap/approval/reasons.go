package approval

// Reason says why a request is approved or left pending, in one word.
type Reason string

// Reasons of Approved on a CertificateSigningRequest.
const (
	// ReasonMachineJoins surfaces when a Machine's instance asks for its first certificate.
	ReasonMachineJoins Reason = "MachineJoins"
	// ReasonNodeRenews surfaces when a Machine's Node asks for a client certificate with the one it has.
	ReasonNodeRenews Reason = "NodeRenews"
	// ReasonNodeServes surfaces when a Machine's Node asks for a serving certificate for its own addresses.
	ReasonNodeServes Reason = "NodeServes"
)

// Reasons for which a CertificateSigningRequest is left pending and nothing is reported: it is another's, or its time
// may come.
const (
	// ReasonNotOurs surfaces for a request of nobody who belongs to a Machine of this provider.
	ReasonNotOurs Reason = "NotOurs"
	// ReasonMachineGone surfaces when the Machine that the token was made for is gone or being deleted.
	ReasonMachineGone Reason = "MachineGone"
	// ReasonNameNotKnownYet surfaces while the instance is not recorded in the Machine's status.
	ReasonNameNotKnownYet Reason = "NameNotKnownYet"
	// ReasonNotPairedYet surfaces while the requesting Node is not the one in its Machine's status.nodeRef.
	ReasonNotPairedYet Reason = "NotPairedYet"
	// ReasonAddressesNotKnown surfaces while the provider was not asked for the instance's addresses, or did not answer.
	ReasonAddressesNotKnown Reason = "AddressesNotKnown"
)

// Reasons for which a CertificateSigningRequest is left pending and an event is recorded on the Machine.
const (
	// ReasonMalformed surfaces for a request such as no kubelet makes.
	ReasonMalformed Reason = "Malformed"
	// ReasonTokenUnknown surfaces when the requester's token is not there any more, or was not made for a Machine.
	ReasonTokenUnknown Reason = "TokenUnknown"
	// ReasonTokenOutdated surfaces when the token was made for a former attempt to launch the Machine.
	ReasonTokenOutdated Reason = "TokenOutdated"
	// ReasonTokenExpired surfaces when the token's life is over.
	ReasonTokenExpired Reason = "TokenExpired"
	// ReasonAlreadyJoined surfaces when the Machine has its Node and the token is used once more.
	ReasonAlreadyJoined Reason = "AlreadyJoined"
	// ReasonNameUnknown surfaces when the provider does not tell under which name the instance registers.
	ReasonNameUnknown Reason = "NameUnknown"
	// ReasonWrongName surfaces when the request is for another node than the Machine will be.
	ReasonWrongName Reason = "WrongName"
	// ReasonNameInUse surfaces when the node name is that of another Machine or of a Node that is not the Machine's.
	ReasonNameInUse Reason = "NameInUse"
	// ReasonUnknownAddress surfaces when a serving certificate is asked for an address that is not the instance's.
	ReasonUnknownAddress Reason = "UnknownAddress"
)

// Reasons of events on a Machine about the certificates of its kubelet.
const (
	// EventReason surfaces when a request that a person should know of is left pending. The message has one of the
	// reasons above.
	EventReason = "CertificateNotApproved"
)
