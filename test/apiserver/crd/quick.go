package crd

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// quick says of a value that it keeps a rule. It may say no of one that does: the rule itself is then evaluated, which
// takes a hundred times as long and gives the error if there is one. old is nil if there was no value before.
type quick func(value, old map[string]any) bool

// The forms that many rules have.
var (
	nameRule     = regexp.MustCompile(`^size\(self\.metadata\.name\) <= (\d+) && !self\.metadata\.name\.contains\('\.'\)$`)
	exactlyOne   = regexp.MustCompile(`^has\(self\.(\w+)\) != has\(self\.(\w+)\)$`)
	together     = regexp.MustCompile(`^!has\(self\.(\w+)\) \|\| has\(self\.(\w+)\)$`)
	notTogether  = regexp.MustCompile(`^!has\(self\.(\w+)\) \|\| !has\(self\.(\w+)\)$`)
	positive     = regexp.MustCompile(`^!has\(self\.(\w+)\) \|\| duration\(self\.(\w+)\) > duration\('0s'\)$`)
	immutable    = regexp.MustCompile(`^self\.(\w+) == oldSelf\.(\w+)$`)
	onlyWith     = regexp.MustCompile(`^!has\(self\.(\w+)\) \|\| !has\(self\.(\w+)\) \|\| `)
	withSelector = regexp.MustCompile(`^!has\(self\.selector\.(\w+)\) \|\| `)
)

// qualifiedNames is the rule on the keys of maps.
const qualifiedNames = `self.all(k, k.matches(r'^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?` +
	`[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && k.indexOf('/') <= 253)`

// quickly returns the quick check for a rule on an object, nil if there is none.
func quickly(rule string) quick {
	if m := nameRule.FindStringSubmatch(rule); m != nil {
		var longest int
		if _, err := fmt.Sscan(m[1], &longest); err != nil {
			return nil
		}
		return func(value, _ map[string]any) bool {
			name, _ := below(value, "metadata")["name"].(string)
			return len(name) <= longest && !strings.Contains(name, ".")
		}
	}
	if m := exactlyOne.FindStringSubmatch(rule); m != nil {
		return func(value, _ map[string]any) bool { return has(value, m[1]) != has(value, m[2]) }
	}
	if m := together.FindStringSubmatch(rule); m != nil {
		return func(value, _ map[string]any) bool { return !has(value, m[1]) || has(value, m[2]) }
	}
	if m := positive.FindStringSubmatch(rule); m != nil && m[1] == m[2] {
		return func(value, _ map[string]any) bool { return !has(value, m[1]) || durationOf(value[m[1]]) > 0 }
	}
	if m := immutable.FindStringSubmatch(rule); m != nil && m[1] == m[2] {
		return func(value, old map[string]any) bool {
			return old == nil || has(value, m[1]) && reflect.DeepEqual(value[m[1]], old[m[1]])
		}
	}
	// Of these the end, if there is one, is left to the rule itself.
	if m := notTogether.FindStringSubmatch(rule); m != nil {
		return func(value, _ map[string]any) bool { return !has(value, m[1]) || !has(value, m[2]) }
	}
	if m := onlyWith.FindStringSubmatch(rule); m != nil {
		return func(value, _ map[string]any) bool { return !has(value, m[1]) || !has(value, m[2]) }
	}
	switch rule {
	case qualifiedNames:
		return plainKeys
	case `!has(self.spec.providerID) || size(self.spec.providerID) == 0`:
		return func(value, _ map[string]any) bool { return !has(below(value, "spec"), "providerID") }
	case `oldSelf.spec.?providerID.orValue("") in ["", self.spec.?providerID.orValue("")] || (self.spec.?providerID.orValue("") == "" && oldSelf.?status.?launch.?step.orValue("") == 'Replacing')`:
		return func(value, old map[string]any) bool {
			before := text(below(old, "spec"), "providerID")
			return before == "" || before == text(below(value, "spec"), "providerID")
		}
	case `(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)`:
		return func(value, _ map[string]any) bool { return len(below(below(value, "selector"), "matchLabels")) > 0 }
	case `!has(self.selector.matchLabels) || (has(self.template.metadata) && has(self.template.metadata.labels) && self.selector.matchLabels.all(k, k in self.template.metadata.labels && self.template.metadata.labels[k] == self.selector.matchLabels[k]))`:
		return func(value, _ map[string]any) bool {
			labels := below(below(below(value, "template"), "metadata"), "labels")
			for k, v := range below(below(value, "selector"), "matchLabels") {
				if label, ok := labels[k]; !ok || label != v {
					return false
				}
			}
			return labels != nil
		}
	case `!has(self.progressDeadline) || duration(self.progressDeadline).getSeconds() > (has(self.minReadySeconds) ? self.minReadySeconds : 0)`:
		return func(value, _ map[string]any) bool {
			ready, _ := value["minReadySeconds"].(int64)
			return !has(value, "progressDeadline") || durationOf(value["progressDeadline"]) >= time.Duration(ready+1)*time.Second
		}
	}
	if m := withSelector.FindStringSubmatch(rule); m != nil {
		return func(value, _ map[string]any) bool { return !has(below(value, "selector"), m[1]) }
	}
	return nil
}

// shortDuration is the rule on durations, the only one on texts.
const shortDuration = `duration(self) < duration('100000h')`

func isShort(value any) bool {
	d, err := time.ParseDuration(fmt.Sprint(value))
	return err == nil && d < 100000*time.Hour
}

func durationOf(value any) time.Duration {
	s, _ := value.(string)
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

// plainKeys says whether all keys are qualified names of the plainest sort.
func plainKeys(value, _ map[string]any) bool {
	for k := range value {
		prefix, name, ok := strings.Cut(k, "/")
		if !ok {
			prefix, name = "", k
		}
		if len(name) == 0 || len(name) > 63 || len(prefix) > 253 || ok && prefix == "" {
			return false
		}
		for _, part := range []string{prefix, name} {
			for i := range len(part) {
				c := part[i]
				inner := i > 0 && i < len(part)-1
				lower := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
				if !lower && (!inner || c != '-') && (!inner || c != '.' || !isAlphanumeric(part[i-1]) ||
					!isAlphanumeric(part[i+1])) {
					return false
				}
			}
		}
	}
	return true
}

func isAlphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func has(value map[string]any, name string) bool {
	_, ok := value[name]
	return ok
}

func below(value map[string]any, name string) map[string]any {
	v, _ := value[name].(map[string]any)
	return v
}

func text(value map[string]any, name string) string {
	v, _ := value[name].(string)
	return v
}
