// Package preflight checks whether machines can become Nodes, before the first machine tries to join. The package
// finds missing permissions, a control plane that does not sign certificates, and an API server address that
// instances cannot reach.
//
// Provider processes make the checks that need few permissions (Join). The command line makes all checks (Cluster). On
// request, it also requests a kubelet certificate in the same way as a new machine (Probe).
package preflight

import "machinist.dev/machinist/api/v1beta1"

// Finding is a problem, or a probable problem.
type Finding struct {
	// Reason names the check, such as "TokensMayNotRequest". This name is also the reason of conditions that report
	// the finding.
	Reason string `json:"reason"`
	// Message is a sentence that describes the problem.
	Message string `json:"message"`
	// Fix is the advice for the reader: a sentence such as "Synchronize the clocks of the control plane."
	Fix string `json:"fix"`
	// Warning means that machines may join despite the problem.
	Warning bool `json:"warning,omitempty"`
	// IsUncertain is true if the check cannot be sure of the problem. The problem is certain once machines fail to
	// join.
	IsUncertain bool `json:"-"`
}

// Text returns the message of the finding, followed by the instruction how to fix the problem.
func (f Finding) Text() string { return f.Message + " " + f.Fix }

// These are the values of Finding.Reason. The first group also contains reasons of the condition JoinBlocked.
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
