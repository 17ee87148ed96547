package fleet

import "machinist.dev/machinist/internal/cli/rollout"

// Tone classifies a state, for example as good or bad. The tone determines the color on a terminal, and the color and
// icon on a web page.
type Tone string

// Tones of states.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	// Moving means that the state is temporary and ends automatically.
	Moving Tone = "moving"
	Bad    Tone = "bad"
	// Neutral means that the state is empty, or neither good nor bad.
	Neutral Tone = "neutral"
)

// ToneOf returns the tone for the state of a deployment, set or machine.
func ToneOf(state string) Tone {
	switch state {
	case "Running", "Available", "Complete", "AsDeclared":
		return Good
	case string(rollout.StateFailed), "Unhealthy", "Frozen", "ReplicaFailure":
		return Bad
	case "Pending", "Provisioning", "Provisioned", "Updating", "Deleting", string(rollout.StateProgressing),
		string(rollout.StateScaling):
		return Moving
	case "", "Old", "Current":
		return Neutral
	}
	return Warn
}

// Explanation returns a text that explains the state of a deployment or set. The result is empty for a frozen object,
// because the table of freezes already shows the reason.
func (x Scaled) Explanation() string {
	if x.Rollout == "Frozen" {
		return ""
	}
	text := ""
	for _, more := range []string{specificReason(x), x.Message} {
		switch {
		case more == "":
		case text == "":
			text = more
		default:
			text += ": " + more
		}
	}
	return text
}
