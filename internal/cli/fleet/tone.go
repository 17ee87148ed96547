package fleet

import "machinist.dev/machinist/internal/cli/rollout"

// Tone is how good a state is: terminals colour it, pages give it a colour and an icon. It only repeats what the word
// says.
type Tone string

// Tones of states.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	// Moving is that of what is on its way by itself.
	Moving Tone = "moving"
	Bad    Tone = "bad"
	// Neutral is that of a state that is neither, and of no state at all.
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

// Because says why a deployment or set is in its state: the reason, where it says more than the state, and the message
// of the condition that reports it. It is empty for a frozen one, which is among the freezes.
func (x Scaled) Because() string {
	if x.Rollout == "Frozen" {
		return ""
	}
	words := ""
	for _, more := range []string{because(x), x.Message} {
		switch {
		case more == "":
		case words == "":
			words = more
		default:
			words += ": " + more
		}
	}
	return words
}
