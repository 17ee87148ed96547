// Package preflight checks whether machines can become Nodes of a cluster, before the first machine tries to join. It
// finds missing permissions, a control plane that does not sign certificates, and an API server address that instances
// cannot reach.
//
// Provider processes make the checks that need few permissions (Join). The command line makes all checks (Cluster).
// On request, the command line also performs the steps of a kubelet that joins, without a machine (Probe).
package preflight

import "machinist.dev/machinist/api/v1beta1"

// Finding is a problem, or a probable problem.
type Finding struct {
	// Reason names the check, such as "TokensMayNotRequest". It is the reason of the condition that shows the finding.
	Reason string `json:"reason"`
	// Message is a sentence that describes the problem.
	Message string `json:"message"`
	// Fix is a sentence that describes what to do.
	Fix string `json:"fix"`
	// Warning is true if machines may be able to join despite the problem.
	Warning bool `json:"warning,omitempty"`
	// Guess is true if the check cannot determine whether the problem exists. In this case, the problem is proven
	// only by machines that fail to join.
	Guess bool `json:"-"`
}

// Text returns message and fix.
func (f Finding) Text() string { return f.Message + " " + f.Fix }

// These are the values of Finding.Reason. The condition JoinBlocked of a class uses the values of the first group too.
const (
	TokensMayNotRequest  = v1beta1.ReasonTokensMayNotRequest
	EndpointNotReachable = v1beta1.ReasonEndpointNotReachable
	EndpointNotTrusted   = v1beta1.ReasonEndpointNotTrusted
	AuthorityExpired     = v1beta1.ReasonAuthorityExpired

	BootstrapTokensDisabled = "BootstrapTokensDisabled"
	NoSigner                = "NoSigner"
	NoClusterInfo           = "NoClusterInfo"
	ClocksDiffer            = "ClocksDiffer"
	VersionNotSupported     = "VersionNotSupported"
	NamesCollide            = "NamesCollide"
	WebhookNotReachable     = "WebhookNotReachable"
	NoNetworkPlugin         = "NoNetworkPlugin"
	TwoNetworkPlugins       = "TwoNetworkPlugins"
)
