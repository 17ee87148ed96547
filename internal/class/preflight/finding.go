// Package preflight finds out why machines will not become Nodes of a cluster, before one has tried: rights that are
// missing, a control plane that does not sign, an address that instances cannot reach. Provider processes make the
// checks that need few rights (Join), the command line makes all of them (Cluster), and on request tries it (Probe).
package preflight

import "machinist.dev/machinist/api/v1beta1"

// Finding is one thing that is wrong, or probably wrong.
type Finding struct {
	// Reason names the check, such as "TokensMayNotRequest". It is the reason of the condition that shows the finding.
	Reason string `json:"reason"`
	// Message says what is wrong, in a sentence.
	Message string `json:"message"`
	// Fix says what to do, in a sentence.
	Fix string `json:"fix"`
	// Warning is true where machines may join nevertheless.
	Warning bool `json:"warning,omitempty"`
	// Guess is true where only machines that do not join prove it.
	Guess bool `json:"-"`
}

// Text returns message and fix.
func (f Finding) Text() string { return f.Message + " " + f.Fix }

// What findings are about. Those that a class may show are reasons of its condition JoinBlocked.
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
