package fleet

import "machinist.dev/machinist/internal/cli/rollout"

// Tone classifies a state, for example as good or bad. On a terminal, the tone determines the color of the state. On a
// web page, it determines the color and the icon.
type Tone string

// Tones of states.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	// Moving is the tone of a temporary state, which normally ends without action by a user.
	Moving Tone = "moving"
	Bad    Tone = "bad"
	// Neutral is the tone of a state that is neither good nor bad, and of an empty state.
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

// Because returns the reason why a deployment or set is in its state. It returns the message of the condition, preceded
// by the reason if the reason is more specific than the state. For a frozen object it returns an empty string, because
// the table of frozen objects contains the explanation.
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
