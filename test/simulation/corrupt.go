package simulation

import (
	"fmt"
	"strconv"
	"strings"
)

// Corruption is one change of one stored field, once in an otherwise undisturbed run, by a client with all permissions.
type Corruption struct {
	// Effect is the number of the effect before which the field is changed, between two steps. AtEnd means after the world
	// has settled.
	Effect int
	Field  Field
	How    How
}

// AtEnd is the effect of a corruption after the run has reached its end.
const AtEnd = -1

// Field is a field of a stored object.
type Field struct {
	Cluster Cluster
	// Kind, Namespace and Name identify the object. Namespace is empty for an object without one.
	Kind, Namespace, Name string
	// Path leads to the field: property names, and for a list item its key (listKey).
	Path []string
}

// Cluster is what stores an object.
type Cluster string

// These are the two API servers, and the cloud with the tags of its instances.
const (
	InControl Cluster = "control"
	InTarget  Cluster = "target"
	InCloud   Cluster = "cloud"
)

// How is how a field is changed.
type How string

// These are the ways to change a field.
const (
	// Dropped removes the field, Emptied sets it to the zero value of its type.
	Dropped How = "dropped"
	Emptied How = "emptied"
	// OfAnother uses the value of another object of the kind, Earlier an earlier value of the same object.
	OfAnother How = "of-another"
	Earlier   How = "former"
	// Highest is an extreme value: a huge number, the far future, a text of 253 characters, the opposite. Lowest is a
	// negative number or the far past.
	Highest How = "highest"
	Lowest  How = "lowest"
	// Other and the following use further values that the schema lists.
	Other  How = "other"
	Other2 How = "other-2"
	Other3 How = "other-3"
	Other4 How = "other-4"
)

// Hows returns all ways to change a field.
func Hows() []How {
	return []How{Dropped, Emptied, OfAnother, Earlier, Highest, Lowest, Other, Other2, Other3, Other4}
}

// String returns the corruption in the format of ParseCorruption: "40:control/Machine/fleet/m-1/status/phase=dropped",
// "end:target/Node/-/m-1/metadata/labels/a~1b=emptied".
func (c Corruption) String() string {
	at := "end"
	if c.Effect != AtEnd {
		at = strconv.Itoa(c.Effect)
	}
	return fmt.Sprintf("%s:%s=%s", at, c.Field, c.How)
}

// String returns the field with its object.
func (f Field) String() string {
	ns := f.Namespace
	if ns == "" {
		ns = "-"
	}
	parts := append([]string{string(f.Cluster), f.Kind, ns, f.Name}, f.Path...)
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1")
	}
	return strings.Join(parts, "/")
}

// ParseCorruption parses a corruption.
func ParseCorruption(text string) (Corruption, error) {
	bad := func(why string) (Corruption, error) {
		return Corruption{}, fmt.Errorf("%q is not a corruption: %s; write EFFECT:CLUSTER/KIND/NAMESPACE/NAME/PATH=HOW, as in "+
			"12:control/Machine/fleet/m-1/status/phase=dropped, with end as EFFECT at the end of a run and - for no NAMESPACE",
			text, why)
	}
	at, rest, ok := strings.Cut(text, ":")
	if !ok {
		return bad("it lacks the effect")
	}
	var c Corruption
	if c.Effect = AtEnd; at != "end" {
		var err error
		if c.Effect, err = strconv.Atoi(at); err != nil || c.Effect < 0 {
			return bad("its effect is not a number")
		}
	}
	i := strings.LastIndex(rest, "=")
	if i < 0 {
		return bad("it lacks the way to change the field")
	}
	c.How = How(rest[i+1:])
	parts := strings.Split(rest[:i], "/")
	if len(parts) < 5 {
		return bad("it lacks the path of a field")
	}
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	c.Field = Field{Cluster: Cluster(parts[0]), Kind: parts[1], Namespace: parts[2], Name: parts[3], Path: parts[4:]}
	if c.Field.Namespace == "-" {
		c.Field.Namespace = ""
	}
	return c, nil
}

// ReportName returns the name of a field in a report, which all objects of a kind share.
func (f Field) ReportName() string {
	parts := make([]string, 0, len(f.Path)+1)
	parts = append(parts, f.Kind)
	for _, p := range f.Path {
		switch {
		case strings.HasPrefix(p, "#"):
			p = "#" // All items of a list share one name.
		case strings.Contains(p, "/"):
			p = "[" + p + "]"
		}
		parts = append(parts, p)
	}
	if f.Cluster == InTarget && f.Kind == "Secret" {
		parts[0] = "Token"
	}
	return strings.Join(parts, ".")
}
