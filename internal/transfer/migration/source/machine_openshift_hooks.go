package source

import (
	"regexp"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodeHookRenamed: a lifecycle hook has another name, by which its owner does not find it.
const CodeHookRenamed = "HookRenamed"

// Bounds of lifecycle hooks.
const (
	mostHooks       = 16
	longestHookText = 253
)

// qualifiedHook is what the name of a hook has to be.
var qualifiedHook = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+` +
	`(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)

// hooks reads a list of lifecycle hooks. A name without the domain of its owner gets one.
func (f *fields) hooks(name string) (all []v1beta1.LifecycleHook) {
	seen := map[string]bool{}
	for _, h := range f.each(name) {
		hook := v1beta1.LifecycleHook{Name: h.text("name"), Owner: h.text("owner")}
		if hook.Name == "" || hook.Owner == "" {
			h.find(provider.FindingBlocker, CodeMissingField, "name", "A hook needs a name and an owner.")
			continue
		}
		if !qualifiedHook.MatchString(hook.Name) {
			hook.Name = provider.SourceOpenShift + "/" + strings.ReplaceAll(hook.Name, "/", ".")
			h.find(provider.FindingLoss, CodeHookRenamed, "name", "A hook needs a name with a domain; it becomes %.253s. Its "+
				"owner does not find it, so that the deletion of the machine waits until a person removes it.", hook.Name)
		}
		switch {
		case !qualifiedHook.MatchString(hook.Name) || len(hook.Name) > longestHookText:
			h.find(provider.FindingBlocker, CodeInvalidValue, "name", "It must be a name of at most %d characters, such as "+
				"example.com/Backup.", longestHookText)
		case len(hook.Owner) > longestHookText:
			h.find(provider.FindingBlocker, CodeInvalidValue, "owner", "It must have at most %d characters.", longestHookText)
		case seen[hook.Name]:
			h.find(provider.FindingBlocker, CodeInvalidValue, "name", "The list has the hook %s twice.", hook.Name)
		case len(all) == mostHooks:
			h.find(provider.FindingBlocker, CodeBounded, "name", "A machine has at most %d hooks of a kind.", mostHooks)
		default:
			seen[hook.Name] = true
			all = append(all, hook)
		}
	}
	return all
}
