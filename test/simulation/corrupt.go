package simulation

import (
	"fmt"
	"strconv"
	"strings"
)

// Corruption is one persisted field of one object that is changed once in a run that is otherwise left alone, as
// somebody with all rights would do it.
type Corruption struct {
	// Effect is the one before which it happens, between two steps. AtEnd is when everything is settled.
	Effect int
	Field  Field
	How    How
}

// AtEnd is the effect of a corruption that happens once the run has come to its end.
const AtEnd = -1

// Field is a field of an object that is stored.
type Field struct {
	Cluster Cluster
	// Kind, Namespace and Name are those of the object; Namespace is empty for an object without one.
	Kind, Namespace, Name string
	// Path leads to the field: names of properties, and for an item of a list what it is known by (listKey).
	Path []string
}

// Cluster is what stores an object.
type Cluster string

// The two API servers, and the cloud with the tags of its instances.
const (
	InControl Cluster = "control"
	InTarget  Cluster = "target"
	InCloud   Cluster = "cloud"
)

// How is how a field is changed.
type How string

// Ways to change a field.
const (
	// Dropped removes it, Emptied sets it to the zero value of its type.
	Dropped How = "dropped"
	Emptied How = "emptied"
	// OfAnother is the value that another object of the kind has there, Earlier one that the object itself had before.
	OfAnother How = "of-another"
	Earlier   How = "former"
	// Highest is an extreme: a huge number, the far future, a text of 253 characters, the opposite. Lowest is the
	// other one: a negative number, the far past.
	Highest How = "highest"
	Lowest  How = "lowest"
	// Other and the following are further values that the schema names.
	Other  How = "other"
	Other2 How = "other-2"
	Other3 How = "other-3"
	Other4 How = "other-4"
)

// Hows are all ways.
func Hows() []How {
	return []How{Dropped, Emptied, OfAnother, Earlier, Highest, Lowest, Other, Other2, Other3, Other4}
}

// String returns the corruption as ParseCorruption reads it: "40:control/Machine/fleet/m-1/status/phase=dropped",
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

// ParseCorruption reads a corruption.
func ParseCorruption(text string) (Corruption, error) {
	bad := func(why string) (Corruption, error) {
		return Corruption{}, fmt.Errorf("%q is no corruption: %s; it is EFFECT:CLUSTER/KIND/NAMESPACE/NAME/PATH=HOW, as in "+
			"12:control/Machine/fleet/m-1/status/phase=dropped, with end as the effect of the end and - for no namespace",
			text, why)
	}
	at, rest, ok := strings.Cut(text, ":")
	if !ok {
		return bad("it has no effect")
	}
	var c Corruption
	if c.Effect = AtEnd; at != "end" {
		var err error
		if c.Effect, err = strconv.Atoi(at); err != nil || c.Effect < 0 {
			return bad("its effect is no number")
		}
	}
	i := strings.LastIndex(rest, "=")
	if i < 0 {
		return bad("it does not say how")
	}
	c.How = How(rest[i+1:])
	parts := strings.Split(rest[:i], "/")
	if len(parts) < 5 {
		return bad("it names no field")
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

// Family is what a field is called in a report: that of all objects of its kind.
func (f Field) Family() string {
	parts := make([]string, 0, len(f.Path)+1)
	parts = append(parts, f.Kind)
	for _, p := range f.Path {
		switch {
		case strings.HasPrefix(p, "#"):
			p = "#" // One item of a list is like another.
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
