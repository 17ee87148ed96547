package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// kindsInOrder come first in the document, from the fleet to its parts.
var kindsInOrder = []string{"MachineDeployment", "MachineSet", "Machine", "MachineClass", "MachineHealthCheck"}

// conditionsDocument is about every kind that has conditions.
func conditionsDocument(root string) ([]byte, error) {
	blocks, err := blocksOf(root)
	if err != nil {
		return nil, err
	}
	return renderConditions(blocks, why.MeaningOf), nil
}

func renderConditions(blocks []block, meaningOf func(condition, reason string) why.Meaning) []byte {
	var out bytes.Buffer
	out.WriteString("# Phases, conditions and reasons\n\n")
	out.WriteString("Generated from the constants in the code by `hack/generate.sh`. ")
	out.WriteString("`machinist why KIND/NAME` says the same about an object that you have.\n\n")
	out.WriteString("A reason stands in `status.conditions[].reason`. A problem that begins is also one event with ")
	out.WriteString("the same reason; a problem that stays causes no further events. ")
	out.WriteString("Reasons that only events have are listed apart.\n")
	kinds := slices.Clone(kindsInOrder)
	for _, b := range blocks {
		if !slices.Contains(kinds, b.kind) {
			kinds = append(kinds, b.kind)
		}
	}
	conditions := map[string]bool{}
	for _, b := range blocks {
		for _, r := range b.rows {
			conditions[r.value] = conditions[r.value] || strings.HasPrefix(b.doc, "Conditions")
		}
	}
	for _, kind := range kinds {
		fmt.Fprintf(&out, "\n## %s\n", kind)
		for _, b := range merged(blocks, kind) {
			b.render(&out, conditions, meaningOf)
		}
	}
	return out.Bytes()
}

// merged returns the blocks of a kind: the phases first, and those with the same heading as one.
func merged(blocks []block, kind string) (ofKind []block) {
	for _, b := range blocks {
		if b.kind != kind {
			continue
		}
		heading, _ := b.heading()
		same := slices.IndexFunc(ofKind, func(other block) bool { h, _ := other.heading(); return h == heading })
		switch {
		case same >= 0:
			ofKind[same].rows = slices.Concat(ofKind[same].rows, b.rows)
		case strings.HasPrefix(b.doc, "Phases"):
			ofKind = slices.Insert(ofKind, 0, b)
		default:
			ofKind = append(ofKind, b)
		}
	}
	return ofKind
}

func (b block) render(out *bytes.Buffer, conditions map[string]bool,
	meaningOf func(condition, reason string) why.Meaning) {
	heading, rest := b.heading()
	fmt.Fprintf(out, "\n### %s\n\n", heading)
	if rest != "" {
		fmt.Fprintf(out, "%s\n\n", sentence(rest))
	}
	if !strings.HasPrefix(b.doc, "Reasons") {
		fmt.Fprintf(out, "| %s | Meaning |\n| --- | --- |\n", strings.TrimSuffix(heading, "s"))
		for _, r := range b.rows {
			fmt.Fprintf(out, "| `%s` | %s |\n", r.value, cell(sentence(strings.TrimPrefix(r.doc, "is "))))
		}
		return
	}
	out.WriteString("| Reason | Surfaces | What comes next, and what you can do |\n| --- | --- | --- |\n")
	for _, r := range b.rows {
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", r.value, cell(sentence(strings.TrimPrefix(r.doc, "surfaces "))),
			cell(b.advice(r.value, conditions, meaningOf)))
	}
}

// heading splits the comment of a block. The heading ends with the first comma or full stop, and lacks the kind.
func (b block) heading() (heading, rest string) {
	heading, rest = strings.TrimSuffix(b.doc, "."), ""
	if end := headingEnd.FindStringIndex(b.doc); end != nil {
		heading, rest = b.doc[:end[0]], b.doc[end[1]:]
	}
	return ofKind.ReplaceAllString(heading, ""), rest
}

var (
	headingEnd = regexp.MustCompile(`[,.:] `)
	ofKind     = regexp.MustCompile(` (?:on|of) an? [A-Z]\w+`)
)

var word = regexp.MustCompile(`[A-Za-z.]+`)

// advice returns what machinist why says to do about a reason, where it says something.
func (b block) advice(reason string, conditions map[string]bool,
	meaningOf func(condition, reason string) why.Meaning) string {
	var about []string
	for _, w := range word.FindAllString(b.doc, -1) {
		w = strings.Trim(w, ".")
		switch {
		case b.kind == "MachineClass" && w == v1beta1.ConditionReady:
			about = append(about, why.ClassReady)
		case w == "status.failureReason":
			about = append(about, string(v1beta1.MachineFailed))
		case conditions[w]:
			about = append(about, w)
		}
	}
	for _, condition := range append(about, "") {
		if m := meaningOf(condition, reason); m.Ends != "" || m.Do != "" {
			return strings.TrimSpace(m.Ends + " " + m.Do)
		}
	}
	return ""
}
