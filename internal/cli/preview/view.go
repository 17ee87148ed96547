package preview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/wording"
)

// Plan describes how a change of a deployment would affect its machines.
type Plan struct {
	// Kind is always RolloutPlan.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// New is true for a new deployment.
	New      bool   `json:"new"`
	Strategy string `json:"strategy"`
	Replicas int32  `json:"replicas"`
	// Changes are the fields of the deployment that would change.
	Changes []Change `json:"changes"`
	// Rolls is true if the change would start a rollout: a revision replaces or adopts the machines of another
	// revision.
	Rolls bool `json:"rolls"`
	// Machines has the names of the machines, grouped by the effect that the change would have on them.
	Machines Machines `json:"machines"`
	// Places are the places of the machines before and after the change, if the deployment has a placement.
	Places []Place `json:"places,omitempty"`
	// Waves are the steps of the change. Each wave starts when the previous wave is complete.
	Waves []Wave `json:"waves"`
	// MaxSurge and MaxUnavailable are the limits of the rollout as numbers of machines.
	MaxSurge       int32 `json:"maxSurge"`
	MaxUnavailable int32 `json:"maxUnavailable"`
	// Peak holds the highest number of machines, including machines that are being deleted. Least holds the lowest
	// number of available machines.
	Peak  int32 `json:"peakMachines"`
	Least int32 `json:"leastAvailable"`
	// Blockers would stop the change. The waves ignore them.
	Blockers []Blocker `json:"blockers"`
	// Notes are warnings, and effects that the preview cannot compute.
	Notes []string `json:"notes"`
}

// Change describes a changed field of the deployment, and the effect of this change on the machines.
type Change struct {
	change.Change
	// Effect is NewRevision, InPlace or Deployment.
	Effect Effect `json:"effect"`
}

// Machines groups the machines by what would happen to them.
type Machines struct {
	// Created is the number of new machines. Transient is the number of new machines that would be deleted before the
	// end of the rollout. Old revisions create such machines to scale up, or to replace a failed machine.
	Created   int32 `json:"created"`
	Transient int32 `json:"transient"`
	// Deleted lists the machines that are replaced or surplus.
	Deleted []string `json:"deleted"`
	// Updated has the names of the machines that the new revision would adopt. The provider may update these machines
	// in place.
	Updated []string `json:"updatedInPlace"`
	// Unchanged lists the machines that the rollout neither deletes nor moves to the new revision.
	Unchanged []string `json:"unchanged"`
	// Propagated has the names of the machines that keep their revision and get the changed fields in place.
	// Unchanged also includes these machines.
	Propagated []string `json:"propagated"`
}

// Wave is a group of simultaneous operations.
type Wave struct {
	// StartCondition describes the condition for the start of the wave, as text that can follow the word "once".
	StartCondition string `json:"once,omitempty"`
	// Step is the step of the rollout (spec.versionSteps), or empty.
	Step string `json:"step,omitempty"`
	// Create maps the name of a set to the number of machines that the set creates.
	Create map[string]int32 `json:"create,omitempty"`
	// Delete has the names of the deleted machines, and Update has the names of the updated machines. The names of
	// machines that do not exist before the rollout start with future/.
	Delete []string `json:"delete,omitempty"`
	Update []string `json:"updateInPlace,omitempty"`
	// Existing is the number of machines during the wave. Live is the number of machines that are not being deleted.
	// Available is the number of available machines.
	Existing  int32 `json:"existing"`
	Live      int32 `json:"live"`
	Available int32 `json:"available"`
	// Reasons contains the controller's reasons for its decisions in this wave.
	Reasons []string `json:"why,omitempty"`
}

// Blocker is an obstacle that would stop the change.
type Blocker struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// endCondition is the condition that ends the blocker, as text that can follow the word "once". It is empty if the
	// waves do not depend on the blocker.
	endCondition string
}

// Text writes the plan as text.
func (p *Plan) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", s.Bold(fmt.Sprintf("machinedeployment/%s in namespace %s", p.Name, p.Namespace)))
	p.changes(&out, s)
	fmt.Fprintf(&out, "%s\n", p.Summary())
	for _, b := range p.Blockers {
		fmt.Fprintf(&out, "%s %s\n", s.Warn("!"), printer.Sanitize(b.Message))
	}
	if len(p.Waves) > 0 {
		fmt.Fprintln(&out)
		if err := p.waves(&out, s); err != nil {
			return err
		}
		fmt.Fprintf(&out, "\nAt most %s at a time, including those that are being deleted",
			wording.Count(p.Peak, "machine"))
		if !p.New {
			fmt.Fprintf(&out, "; at least %d available", p.Least)
		}
		out.WriteString(".\n")
	}
	if len(p.Places) > 0 {
		fmt.Fprintln(&out)
		if err := p.places(&out, s); err != nil {
			return err
		}
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&out, "%s\n", s.Dim(printer.Sanitize(note)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (p *Plan) changes(out *strings.Builder, s printer.Style) {
	mark := map[Effect]string{EffectRolls: s.Warn("new revision"), EffectInPlace: "in place", EffectNone: ""}
	for _, c := range p.Changes {
		line := "  " + printer.Sanitize(c.String())
		if c.Effect != EffectNone {
			line += "  (" + mark[c.Effect] + ")"
		}
		fmt.Fprintln(out, line)
	}
}

// Summary describes the plan in one or two sentences.
func (p *Plan) Summary() string {
	if !p.New && len(p.Changes) == 0 {
		return "Nothing would change."
	}
	m := p.Machines
	newMachines := m.Created - m.Transient
	replaced := min(newMachines, int32(len(m.Deleted)))
	created, deleted := newMachines-replaced, int32(len(m.Deleted))-replaced
	var parts []string
	add := func(n int32, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, wording.Count(n, "machine")))
		}
	}
	if p.New {
		return fmt.Sprintf("The deployment is new: %s would be created.", wording.Count(newMachines, "machine"))
	}
	add(replaced, "%s would be replaced.")
	add(int32(len(m.Updated)), "%s would be updated in place if the provider supports that.")
	add(created, "%s would be created.")
	add(deleted, "%s would be deleted.")
	rest := "%s would stay."
	if len(parts) == 0 {
		parts, rest = append(parts, "No machine would be created, replaced or deleted."), ""
	}
	add(m.Transient, "During the rollout, %s of the old revision would also be created, and later replaced.")
	add(int32(len(m.Propagated)), "The change would be applied in place to %s and their Nodes.")
	if rest != "" {
		add(int32(len(m.Unchanged)), rest)
	}
	return strings.Join(parts, " ")
}

// Row is one wave, or several consecutive waves with the same numbers of machines.
type Row struct {
	// Number is the number of the wave, or a range such as "2-5".
	Number string
	// StartCondition describes the condition for the start of these waves. It is empty if the previous row has the
	// same condition.
	StartCondition string
	// Step is the step of these waves. It is empty if the previous row has the same step.
	Step string
	// IsCombined is true if the row combines more than one wave.
	IsCombined bool
	// Created, OneDeletes and OneUpdates are the numbers of machines that each single wave creates, deletes and
	// updates.
	Created, OneDeletes, OneUpdates int
	// Deleted and Updated are the names of all machines that these waves delete or update.
	Deleted, Updated []string
	// Existing is the highest number of machines during these waves. Available is the lowest number of available
	// machines during these waves.
	Existing, Available int32
}

// Rows returns the rows of the table that shows the waves. Consecutive waves with the same numbers of machines share a
// row.
func (p *Plan) Rows() []Row {
	var rows []Row
	once, step := "", ""
	for i := 0; i < len(p.Waves); {
		w, j := p.Waves[i], i+1
		row := Row{Number: fmt.Sprint(i + 1), OneDeletes: len(w.Delete), OneUpdates: len(w.Update),
			Deleted: slices.Clone(w.Delete), Updated: slices.Clone(w.Update), Existing: w.Existing, Available: w.Available}
		for _, n := range w.Create {
			row.Created += int(n)
		}
		for ; j < len(p.Waves) && sameNumbers(w, p.Waves[j]); j++ {
			row.Deleted = append(row.Deleted, p.Waves[j].Delete...)
			row.Updated = append(row.Updated, p.Waves[j].Update...)
			row.Existing = max(row.Existing, p.Waves[j].Existing)
			row.Available = min(row.Available, p.Waves[j].Available)
		}
		if j > i+1 {
			row.Number, row.IsCombined = fmt.Sprintf("%d-%d", i+1, j), true
		}
		if w.StartCondition != once {
			once, row.StartCondition = w.StartCondition, w.StartCondition
		}
		if w.Step != step {
			step, row.Step = w.Step, w.Step
		}
		rows = append(rows, row)
		i = j
	}
	return rows
}

// Creates returns how many machines each wave creates, or "-".
func (r Row) Creates() string {
	if r.Created == 0 {
		return "-"
	}
	return fmt.Sprint(r.Created) + r.each()
}

// Deletes returns a text with the number of machines that each wave deletes, and at most limit names of these machines.
func (r Row) Deletes(limit int) string { return r.named(r.OneDeletes, r.Deleted, limit) }

// Updates returns a text with the number of machines that each wave updates in place, and at most limit names of these
// machines.
func (r Row) Updates(limit int) string { return r.named(r.OneUpdates, r.Updated, limit) }

func (r Row) named(n int, names []string, limit int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%s: %s", n, r.each(), firstNames(names, limit))
}

func (r Row) each() string {
	if r.IsCombined {
		return " each"
	}
	return ""
}

func (p *Plan) waves(out *strings.Builder, s printer.Style) error {
	var rows [][]string
	for _, r := range p.Rows() {
		number, shown := r.Number, 3
		if r.StartCondition != "" {
			number += " (once " + r.StartCondition + ")"
		}
		if r.Step != "" {
			number += " (" + r.Step + ")"
		}
		if s.AllColumns {
			shown = max(len(r.Deleted), len(r.Updated))
		}
		rows = append(rows, []string{number, r.Creates(), r.Deletes(shown), r.Updates(shown), fmt.Sprint(r.Existing),
			fmt.Sprint(r.Available)})
	}
	head := []string{"WAVE", "CREATE", "DELETE", "UPDATE", "MACHINES", "AVAILABLE"}
	if len(p.Machines.Updated) == 0 {
		head = slices.Delete(head, 3, 4)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 3, 4)
		}
	}
	return printer.Table(out, head, rows)
}

// places writes a table with the places of the machines before and after the change.
func (p *Plan) places(out *strings.Builder, s printer.Style) error {
	rows := make([][]string, len(p.Places))
	for i, place := range p.Places {
		domain := printer.Sanitize(place.Domain)
		if domain == "" {
			domain = s.Dim("not an option")
		}
		rows[i] = []string{domain, printer.Sanitize(place.Class), fmt.Sprint(place.Before), fmt.Sprint(place.After)}
	}
	return printer.Table(out, []string{"DOMAIN", "CLASS", "NOW", "AFTERWARDS"}, rows)
}

func sameNumbers(a, b Wave) bool {
	return a.StartCondition == b.StartCondition && a.Step == b.Step && maps.Equal(a.Create, b.Create) &&
		len(a.Delete) == len(b.Delete) &&
		len(a.Update) == len(b.Update)
}

// firstNames joins at most limit names and counts the others. Machines from the rollout itself have no names yet, so
// these machines are only counted.
func firstNames(names []string, limit int) string {
	existing := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return strings.HasPrefix(n, simulatedPrefix)
	})
	list := existing[:min(len(existing), limit)]
	if more := len(existing) - len(list); more > 0 {
		list = append(list[:len(list):len(list)], fmt.Sprintf("%d more", more))
	}
	if created := len(names) - len(existing); created > 0 {
		list = append(list[:len(list):len(list)], fmt.Sprintf("%d created before", created))
	}
	if last := len(list) - 1; last > 0 && (len(existing) > limit || len(names) > len(existing)) {
		return strings.Join(list[:last], ", ") + " and " + list[last]
	}
	return strings.Join(list, ", ")
}
