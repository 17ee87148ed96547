package fakeaws

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// params are the parameters of a call in the Query protocol. The keys have the form "Filter.1.Value.2". Each read
// marks its key as known, so that unknown parameters can be refused.
type params struct {
	values url.Values
	prefix string
	known  map[string]bool
	// invalid is the first value that could not be parsed.
	invalid *failure
}

func newParams(values url.Values) *params {
	return &params{values: values, known: map[string]bool{"Action": true, "Version": true}}
}

func (p *params) has(name string) bool { return p.values.Has(p.prefix + name) }

func (p *params) text(name string) string {
	p.known[p.prefix+name] = true
	return p.values.Get(p.prefix + name)
}

func (p *params) flag(name string, otherwise bool) bool {
	switch text := p.text(name); text {
	case "":
		return otherwise
	case "true", "false":
		return text == "true"
	default:
		p.refuse(name, text)
		return otherwise
	}
}

func (p *params) number(name string) int {
	text := p.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.refuse(name, text)
	}
	return n
}

func (p *params) refuse(name, value string) {
	if p.invalid == nil {
		p.invalid = fail(http.StatusBadRequest, "InvalidParameterValue", "Invalid value '%s' for %s%s.", value,
			p.prefix, name)
	}
}

// oneOf reads a text that must be empty or one of the given values.
func (p *params) oneOf(name string, allowed ...string) string {
	text := p.text(name)
	if text != "" && !slices.Contains(allowed, text) {
		p.refuse(name, text)
	}
	return text
}

// list reads NAME.1, NAME.2 and so on.
func (p *params) list(name string) (all []string) {
	for i := 1; p.has(fmt.Sprintf("%s.%d", name, i)); i++ {
		all = append(all, p.text(fmt.Sprintf("%s.%d", name, i)))
	}
	return all
}

// child returns the parameters below NAME, or nil if there are none.
func (p *params) child(name string) *params {
	prefix := p.prefix + name + "."
	for key := range p.values {
		if strings.HasPrefix(key, prefix) {
			return &params{values: p.values, prefix: prefix, known: p.known}
		}
	}
	return nil
}

// children returns the parameters below NAME.1, NAME.2 and so on.
func (p *params) children(name string) (all []*params) {
	for i := 1; ; i++ {
		c := p.child(fmt.Sprintf("%s.%d", name, i))
		if c == nil {
			return all
		}
		all = append(all, c)
	}
}

// tags reads a list of tags.
func (p *params) tags(name string) map[string]string {
	all := map[string]string{}
	for _, tag := range p.children(name) {
		all[tag.text("Key")] = tag.text("Value")
	}
	return all
}

// check returns an error for the first invalid or unknown parameter. Handlers call check after they have read all
// parameters and before they change anything.
func (p *params) check(children ...*params) *failure {
	for _, c := range append(children, p) {
		if c != nil && c.invalid != nil {
			return c.invalid
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		if !p.known[key] {
			return fail(http.StatusBadRequest, "UnknownParameter", "The parameter %s is not recognized", key)
		}
	}
	return nil
}
