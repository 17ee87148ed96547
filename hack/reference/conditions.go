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

var firstKinds = []string{"MachineDeployment", "MachineSet", "Machine", "MachineClass", "MachineHealthCheck"}

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
	out.WriteString("`machinist why KIND/NAME` explains the conditions of an object in the same words.\n\n")
	out.WriteString("The reason of a condition is in `status.conditions[].reason`. When a problem begins, there is also one event with ")
	out.WriteString("the same reason. A problem that persists causes no further events. ")
	out.WriteString("Reasons that only events have are listed separately.\n")
	kinds := slices.Clone(firstKinds)
	for _, b := range blocks {
		if !slices.Contains(kinds, b.kind) {
			kinds = append(kinds, b.kind)
		}
	}
	conditions := map[string]bool{}
	for _, b := range blocks {
		for _, r := range b.constants {
			conditions[r.value] = conditions[r.value] || strings.HasPrefix(b.doc, "Conditions")
		}
	}
	for _, kind := range kinds {
		fmt.Fprintf(&out, "\n## %s\n", kind)
		for _, b := range mergeBlocks(blocks, kind) {
			b.render(&out, conditions, meaningOf)
		}
	}
	return out.Bytes()
}

// mergeBlocks selects the blocks of constants for one kind of object. If several blocks have the same heading, their
// constants are combined in one block. The block with the phases comes first.
func mergeBlocks(blocks []block, kind string) (ofKind []block) {
	for _, b := range blocks {
		if b.kind != kind {
			continue
		}
		heading, _ := b.heading()
		same := slices.IndexFunc(ofKind, func(other block) bool { h, _ := other.heading(); return h == heading })
		switch {
		case same >= 0:
			ofKind[same].constants = slices.Concat(ofKind[same].constants, b.constants)
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
		for _, r := range b.constants {
			fmt.Fprintf(out, "| `%s` | %s |\n", r.value, cell(sentence(strings.TrimPrefix(r.doc, "is "))))
		}
		return
	}
	out.WriteString("| Reason | Surfaces | What happens next | What you can do |\n| --- | --- | --- | --- |\n")
	for _, r := range b.constants {
		next, do := b.advice(r.value, conditions, meaningOf)
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", r.value, cell(sentence(strings.TrimPrefix(r.doc, "surfaces "))),
			cell(next), cell(do))
	}
}

// heading splits the comment of a block at the first comma, colon or full stop. The heading omits the kind.
func (b block) heading() (heading, rest string) {
	heading, rest = strings.TrimSuffix(b.doc, "."), ""
	if end := headingEnd.FindStringIndex(b.doc); end != nil {
		heading, rest = b.doc[:end[0]], b.doc[end[1]:]
	}
	return kindPhrase.ReplaceAllString(heading, ""), rest
}

var (
	headingEnd = regexp.MustCompile(`[,.:] `)
	kindPhrase = regexp.MustCompile(` (?:on|of) an? [A-Z]\w+`)
)

var word = regexp.MustCompile(`[A-Za-z.]+`)

// advice returns what machinist why prints for a reason: what happens next, and what the user can do. Both texts may
// be empty.
func (b block) advice(reason string, conditions map[string]bool,
	meaningOf func(condition, reason string) why.Meaning) (next, do string) {
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
		if m := meaningOf(condition, reason); m.NextStep != "" || m.Instructions != "" {
			return m.NextStep, m.Instructions
		}
	}
	return "", ""
}
