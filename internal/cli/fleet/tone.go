package fleet

import "machinist.dev/machinist/internal/cli/rollout"

// Tone classifies a state as good or bad. Terminals show it as a colour, and pages as a colour and an icon.
type Tone string

// Tones of states.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	// Moving is the tone of a state that normally ends automatically.
	Moving Tone = "moving"
	Bad    Tone = "bad"
	// Neutral is the tone of a state that is neither good nor bad, and of an empty state.
	Neutral Tone = "neutral"
)

// ToneOf returns the tone of a state of a deployment, set or machine.
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

// Because returns why a deployment or set is in its state: the reason, if it is more specific than the state, and the
// message of the condition. It returns an empty string for a frozen object, because the freezes list it.
func (x Scaled) Because() string {
	if x.Rollout == "Frozen" {
		return ""
	}
	text := ""
	for _, more := range []string{because(x), x.Message} {
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
