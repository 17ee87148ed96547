package source

import (
	"regexp"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodeHookRenamed: a lifecycle hook gets another name, so its owner does not find it.
const CodeHookRenamed = "HookRenamed"

const (
	maxHooks    = 16
	maxHookText = 253
)

// qualifiedHook matches valid names of hooks, which contain a domain.
var qualifiedHook = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+` +
	`(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)

// lifecycleHooks reads a list of lifecycle hooks. If the name of a hook has no domain, lifecycleHooks adds a domain.
func (f *fields) lifecycleHooks(name string) (all []v1beta1.LifecycleHook) {
	seen := map[string]bool{}
	for _, h := range f.objects(name) {
		hook := v1beta1.LifecycleHook{Name: h.text("name"), Owner: h.text("owner")}
		if hook.Name == "" || hook.Owner == "" {
			h.report(provider.FindingBlocker, CodeMissingField, "name", "A hook needs a name and an owner.")
			continue
		}
		if !qualifiedHook.MatchString(hook.Name) {
			hook.Name = provider.SourceOpenShift + "/" + strings.ReplaceAll(hook.Name, "/", ".")
			h.report(provider.FindingLoss, CodeHookRenamed, "name", "The name of a hook must have a domain. The new name is "+
				"%.253s. The owner does not find the hook under that name, so the deletion of the machine waits until the "+
				"hook is removed by hand.", hook.Name)
		}
		switch {
		case !qualifiedHook.MatchString(hook.Name) || len(hook.Name) > maxHookText:
			h.report(provider.FindingBlocker, CodeInvalidValue, "name", "The value must be a name of at most %d characters, "+
				"such as example.com/Backup.", maxHookText)
		case len(hook.Owner) > maxHookText:
			h.report(provider.FindingBlocker, CodeInvalidValue, "owner", "The owner must have at most %d characters.",
				maxHookText)
		case seen[hook.Name]:
			h.report(provider.FindingBlocker, CodeInvalidValue, "name", "The list contains the hook %s twice.", hook.Name)
		case len(all) == maxHooks:
			h.report(provider.FindingBlocker, CodeBounded, "name", "A machine can have at most %d hooks of one kind.", maxHooks)
		default:
			seen[hook.Name] = true
			all = append(all, hook)
		}
	}
	return all
}
