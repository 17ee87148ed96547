package cli

import (
	"fmt"
	"strings"
)

type kind string

const (
	machine    kind = "machine"
	set        kind = "machineset"
	deployment kind = "machinedeployment"
	migration  kind = "migration"
	class      kind = "machineclass"
	// node is the only kind of argument outside of Machinist's API.
	node kind = "node"
)

// kindOf parses the name of a kind. Like kubectl, it accepts singular, plural, short name, and the full name with the
// API group.
func kindOf(text string) (kind, bool) {
	switch strings.ToLower(text) {
	case "node", "nodes", "no":
		return node, true
	}
	name, group, qualified := strings.Cut(strings.ToLower(text), ".")
	if qualified && group != "machinist.dev" && group != "v1beta1.machinist.dev" {
		return "", false
	}
	switch name {
	case "machine", "machines", "ma", "mma":
		return machine, true
	case "machineset", "machinesets", "ms", "mms":
		return set, true
	case "machinedeployment", "machinedeployments", "md", "mmd":
		return deployment, true
	case "machineclass", "machineclasses", "mclass":
		return class, true
	case "migration", "migrations", "mig":
		return migration, true
	}
	return "", false
}

// reference parses TYPE/NAME or TYPE NAME, as kubectl does. If the type is missing, the result is the first allowed
// kind.
func reference(args []string, allowed ...kind) (kind, string, error) {
	var asked, name string
	switch {
	case len(args) == 2 && !strings.Contains(args[0]+args[1], "/"):
		asked, name = args[0], args[1]
	case len(args) == 1 && strings.Count(args[0], "/") == 1:
		asked, name, _ = strings.Cut(args[0], "/")
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		asked, name = string(allowed[0]), args[0]
	default:
		return "", "", fmt.Errorf("%q: write TYPE/NAME, such as %s/NAME", strings.Join(args, " "), allowed[0])
	}
	if name == "" {
		return "", "", fmt.Errorf("%q: the name is missing, write %s/NAME", strings.Join(args, " "), allowed[0])
	}
	k, known := kindOf(asked)
	for _, a := range allowed {
		if known && a == k {
			return k, name, nil
		}
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return "", "", fmt.Errorf("%q: the type %q is not one of: %s", strings.Join(args, " "), asked,
		strings.Join(names, ", "))
}
