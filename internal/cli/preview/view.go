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

// Plan is what a change of a deployment would do to its machines.
type Plan struct {
	// Kind is RolloutPlan.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// New says that there is no such deployment yet.
	New      bool   `json:"new"`
	Strategy string `json:"strategy"`
	Replicas int32  `json:"replicas"`
	// Changes are the fields of the deployment that differ.
	Changes []Change `json:"changes"`
	// Rolls says that machines of one revision would be exchanged for those of another, or handed over to it.
	Rolls bool `json:"rolls"`
	// Machines says what would become of each.
	Machines Machines `json:"machines"`
	// Waves are what would happen, each once the one before is done.
	Waves []Wave `json:"waves"`
	// MaxSurge and MaxUnavailable are the bounds of the rollout, in machines.
	MaxSurge       int32 `json:"maxSurge"`
	MaxUnavailable int32 `json:"maxUnavailable"`
	// Peak is the greatest number of machines there would be at a time, those being deleted included; Least the smallest
	// number available.
	Peak  int32 `json:"peakMachines"`
	Least int32 `json:"leastAvailable"`
	// Blockers would keep it from happening. The waves are reported as if each had ended.
	Blockers []Blocker `json:"blockers"`
	// Notes say what could not be previewed.
	Notes []string `json:"notes"`
}

// Change is a field that differs, and what that does.
type Change struct {
	change.Change
	// Effect is NewRevision, InPlace or Deployment.
	Effect Effect `json:"effect"`
}

// Machines are the names of machines by what would become of them.
type Machines struct {
	// Created is how many would be made. Transient is how many of them would be deleted again before the end: a set of the
	// old revision makes some when replicas are raised meanwhile, or when one of its machines fails.
	Created   int32 `json:"created"`
	Transient int32 `json:"transient"`
	// Deleted would go: replaced, or no longer wanted.
	Deleted []string `json:"deleted"`
	// Updated would be handed over to the new revision and changed in place where their provider can.
	Updated []string `json:"updatedInPlace"`
	// Unchanged would stay.
	Unchanged []string `json:"unchanged"`
	// Propagated are those of Kept that get what has changed and makes no new revision.
	Propagated []string `json:"propagated"`
}

// Wave is what is done at a time.
type Wave struct {
	// Once says what must have come about before.
	Once string `json:"once,omitempty"`
	// Create is how many machines each set would make.
	Create map[string]int32 `json:"create,omitempty"`
	// Delete and Update name machines. Those that this rollout made itself have names that begin with previewed/.
	Delete []string `json:"delete,omitempty"`
	Update []string `json:"updateInPlace,omitempty"`
	// Existing counts all machines meanwhile, Live those that are not being deleted, Available those that are available.
	Existing  int32 `json:"existing"`
	Live      int32 `json:"live"`
	Available int32 `json:"available"`
	// Why are the controller's own reasons.
	Why []string `json:"why,omitempty"`
}

// Blocker is something that would keep a change from being carried out.
type Blocker struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// once says when it has ended, in words that follow "once"; empty if the waves do not depend on it.
	once string
}

// Text implements the view of a command.
func (p *Plan) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", s.Strong(fmt.Sprintf("machinedeployment/%s in namespace %s", p.Name, p.Namespace)))
	p.changes(&out, s)
	fmt.Fprintf(&out, "%s\n", p.Summary())
	for _, b := range p.Blockers {
		fmt.Fprintf(&out, "%s %s\n", s.Warn("!"), printer.Clean(b.Message))
	}
	if len(p.Waves) > 0 {
		fmt.Fprintln(&out)
		if err := p.waves(&out, s); err != nil {
			return err
		}
		fmt.Fprintf(&out, "\nAt most %s at a time, those being deleted included", wording.Count(p.Peak, "machine"))
		if !p.New {
			fmt.Fprintf(&out, "; at least %d available", p.Least)
		}
		out.WriteString(".\n")
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&out, "%s\n", s.Faint(printer.Clean(note)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (p *Plan) changes(out *strings.Builder, s printer.Style) {
	mark := map[Effect]string{EffectRolls: s.Warn("new revision"), EffectInPlace: "in place", EffectNone: ""}
	for _, c := range p.Changes {
		line := "  " + printer.Clean(c.String())
		if c.Effect != EffectNone {
			line += "  (" + mark[c.Effect] + ")"
		}
		fmt.Fprintln(out, line)
	}
}

// Summary is the answer in a sentence or two.
func (p *Plan) Summary() string {
	if !p.New && len(p.Changes) == 0 {
		return "Nothing would change."
	}
	m := p.Machines
	stay := m.Created - m.Transient
	replaced := min(stay, int32(len(m.Deleted)))
	created, deleted := stay-replaced, int32(len(m.Deleted))-replaced
	var parts []string
	add := func(n int32, words string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(words, wording.Count(n, "machine")))
		}
	}
	if p.New {
		return fmt.Sprintf("A new deployment: %s would be created.", wording.Count(stay, "machine"))
	}
	add(replaced, "%s would be replaced.")
	add(int32(len(m.Updated)), "%s would be updated in place where the provider can.")
	add(created, "%s would be created.")
	add(deleted, "%s would be deleted.")
	rest := "%s would stay."
	if len(parts) == 0 {
		parts, rest = append(parts, "No machine would be created, replaced or deleted."), ""
	}
	add(m.Transient, "On the way %s more would be made of the old revision, and replaced as well.")
	add(int32(len(m.Propagated)), "The change reaches %s and their Nodes in place.")
	if rest != "" {
		add(int32(len(m.Unchanged)), rest)
	}
	return strings.Join(parts, " ")
}

// Row is a wave, or several in a row that do the same in number.
type Row struct {
	// Number is that of the wave or, of several, the first and the last: "2-5".
	Number string
	// Once says what must have come about before, where that differs from the row before.
	Once string
	// Several says that Created and the numbers in Deleted and Updated are those of each wave.
	Several bool
	// Created is how many machines each wave makes; OneDeletes and OneUpdates are how many go or change in each.
	Created, OneDeletes, OneUpdates int
	// Deleted and Updated are the names of the machines of all the waves of the row.
	Deleted, Updated []string
	// Existing is the greatest number of machines meanwhile, Available the smallest number that is available.
	Existing, Available int32
}

// Rows returns the waves, with those in a row that do the same in number as one.
func (p *Plan) Rows() []Row {
	var rows []Row
	once := ""
	for i := 0; i < len(p.Waves); {
		w, j := p.Waves[i], i+1
		row := Row{Number: fmt.Sprint(i + 1), OneDeletes: len(w.Delete), OneUpdates: len(w.Update),
			Deleted: slices.Clone(w.Delete), Updated: slices.Clone(w.Update), Existing: w.Existing, Available: w.Available}
		for _, n := range w.Create {
			row.Created += int(n)
		}
		for ; j < len(p.Waves) && alike(w, p.Waves[j]); j++ {
			row.Deleted = append(row.Deleted, p.Waves[j].Delete...)
			row.Updated = append(row.Updated, p.Waves[j].Update...)
			row.Existing = max(row.Existing, p.Waves[j].Existing)
			row.Available = min(row.Available, p.Waves[j].Available)
		}
		if j > i+1 {
			row.Number, row.Several = fmt.Sprintf("%d-%d", i+1, j), true
		}
		if w.Once != once {
			once, row.Once = w.Once, w.Once
		}
		rows = append(rows, row)
		i = j
	}
	return rows
}

// Creates says how many machines each wave of the row makes, "-" for none.
func (r Row) Creates() string {
	if r.Created == 0 {
		return "-"
	}
	return fmt.Sprint(r.Created) + r.each()
}

// Deletes says how many machines go, and names at most so many.
func (r Row) Deletes(most int) string { return r.named(r.OneDeletes, r.Deleted, most) }

// Updates says how many machines change in place, and names at most so many.
func (r Row) Updates(most int) string { return r.named(r.OneUpdates, r.Updated, most) }

func (r Row) named(n int, names []string, most int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%s: %s", n, r.each(), some(names, most))
}

func (r Row) each() string {
	if r.Several {
		return " each"
	}
	return ""
}

// waves writes a row for each wave. Waves in a row that do the same in number share one.
func (p *Plan) waves(out *strings.Builder, s printer.Style) error {
	var rows [][]string
	for _, r := range p.Rows() {
		number, shown := r.Number, 3
		if r.Once != "" {
			number += " (once " + r.Once + ")"
		}
		if s.Wide {
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

func alike(a, b Wave) bool {
	return a.Once == b.Once && maps.Equal(a.Create, b.Create) && len(a.Delete) == len(b.Delete) &&
		len(a.Update) == len(b.Update)
}

// some names the first of them. Those that do not exist yet have no names.
func some(names []string, shown int) string {
	there := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, previewed) })
	list := there[:min(len(there), shown)]
	if more := len(there) - len(list); more > 0 {
		list = append(list[:len(list):len(list)], fmt.Sprintf("%d more", more))
	}
	if made := len(names) - len(there); made > 0 {
		list = append(list[:len(list):len(list)], fmt.Sprintf("%d made before", made))
	}
	if last := len(list) - 1; last > 0 && (len(there) > shown || len(names) > len(there)) {
		return strings.Join(list[:last], ", ") + " and " + list[last]
	}
	return strings.Join(list, ", ")
}
