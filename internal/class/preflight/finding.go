// Package preflight checks whether machines can become Nodes of a cluster, before the first machine has tried. It finds
// missing permissions, a control plane that does not sign certificates, and an API server address that instances cannot
// reach.
//
// Provider processes make the checks that need few permissions (Join). The command line makes all checks (Cluster) and,
// on request, tries to join without a machine (Probe).
package preflight

import "machinist.dev/machinist/api/v1beta1"

// Finding is a problem, or a probable problem.
type Finding struct {
	// Reason names the check, such as "TokensMayNotRequest". It is the reason of the condition that shows the finding.
	Reason string `json:"reason"`
	// Message describes the problem in a sentence.
	Message string `json:"message"`
	// Fix describes what to do in a sentence.
	Fix string `json:"fix"`
	// Warning is true if machines may be able to join despite the problem.
	Warning bool `json:"warning,omitempty"`
	// Guess is true if only machines that do not join prove the problem.
	Guess bool `json:"-"`
}

// Text returns message and fix.
func (f Finding) Text() string { return f.Message + " " + f.Fix }

// These are the values of Finding.Reason. Those that a class may show are reasons of its condition JoinBlocked.
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
