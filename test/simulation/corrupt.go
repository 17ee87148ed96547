package simulation

import (
	"fmt"
	"strconv"
	"strings"
)

// Corruption is a single change of one stored field, by a client with all permissions in an otherwise undisturbed run.
type Corruption struct {
	// Effect is the number of an effect. The field changes before this effect, or at the end if Effect is AtEnd.
	Effect int
	Field  Field
	How    ChangeKind
}

// AtEnd means that the change happens after the run has reached its end.
const AtEnd = -1

// Field identifies a field of a stored object.
type Field struct {
	Cluster Cluster
	// Kind, Namespace and Name identify the object that contains the field. If the object has no namespace, Namespace is
	// empty.
	Kind, Namespace, Name string
	// Path contains the names of properties, and the keys of list items (see listKey).
	Path []string
}

// Cluster names the API server that stores an object.
type Cluster string

// An object is stored by one of two API servers.
const (
	InControl Cluster = "control"
	InTarget  Cluster = "target"
)

// ChangeKind is the way in which a corruption changes a field.
type ChangeKind string

// Ways to change a field.
const (
	// ChangeDropped means that the field is removed. ChangeEmptied means that the field gets the zero value of its
	// type.
	ChangeDropped ChangeKind = "dropped"
	ChangeEmptied ChangeKind = "emptied"
	// ChangeOfAnother means that the field gets the value that it has in another object of the same kind.
	// ChangeEarlier means that the field gets one of its own earlier values.
	ChangeOfAnother ChangeKind = "of-another"
	ChangeEarlier   ChangeKind = "former"
	// ChangeHighest means that the field gets an extreme value: a huge number, a time in the distant future, or a
	// text of 253 characters. A boolean gets the opposite value. ChangeLowest means that the field gets a negative
	// number or a time in the distant past.
	ChangeHighest ChangeKind = "highest"
	ChangeLowest  ChangeKind = "lowest"
	// ChangeOther, ChangeOther2 and so on mean the remaining values of a field whose schema lists the allowed values.
	ChangeOther  ChangeKind = "other"
	ChangeOther2 ChangeKind = "other-2"
	ChangeOther3 ChangeKind = "other-3"
	ChangeOther4 ChangeKind = "other-4"
)

// Hows returns all ways in which a corruption can change a field.
func Hows() []ChangeKind {
	return []ChangeKind{ChangeDropped, ChangeEmptied, ChangeOfAnother, ChangeEarlier, ChangeHighest,
		ChangeLowest, ChangeOther, ChangeOther2, ChangeOther3, ChangeOther4}
}

// String returns the corruption in the format of ParseCorruption, for example
// "40:control/Machine/fleet/m-1/status/phase=dropped" or "end:control/Machine/fleet/m-1/metadata/labels/a~1b=emptied".
func (c Corruption) String() string {
	at := "end"
	if c.Effect != AtEnd {
		at = strconv.Itoa(c.Effect)
	}
	return fmt.Sprintf("%s:%s=%s", at, c.Field, c.How)
}

// String returns the path of the field with its object.
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
		return bad("it does not say how to change the field")
	}
	c.How = ChangeKind(rest[i+1:])
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

// ReportName returns the name of the field in reports. The name is the same for all objects of a kind.
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
