package fleet

import "machinist.dev/machinist/internal/cli/rollout"

// Tone classifies a state as good or bad, for example. It determines the color on a terminal, and the color and icon on
// a web page.
type Tone string

const (
	Good Tone = "good"
	Warn Tone = "warn"
	// Moving is the tone of a temporary state that ends without a user.
	Moving Tone = "moving"
	Bad    Tone = "bad"
	// Neutral is the tone of an empty state, or of one that is neither good nor bad.
	Neutral Tone = "neutral"
)

// ToneOf returns the tone for the state of a deployment, set or machine.
func ToneOf(state string) Tone {
	switch state {
	case "Running", "Available", "Complete", "AsDeclared":
		return Good
	case string(rollout.Failed), "Unhealthy", "Frozen", "ReplicaFailure":
		return Bad
	case "Pending", "Provisioning", "Provisioned", "Updating", "Deleting", string(rollout.Progressing),
		string(rollout.Scaling):
		return Moving
	case "", "Old", "Current":
		return Neutral
	}
	return Warn
}

// Because returns why a deployment or set is in its state. It is empty for a frozen object, which has its own table.
func (x Scaled) Because() string {
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
