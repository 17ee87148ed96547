package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	blocker = "Blocker"
	loss    = "Loss"
	note    = "Note"
)

const maxFindings = 100

// Plan is a migrator's plan for the fleet of another system.
type Plan struct {
	Migration *v1beta1.Migration
	Findings  []Finding
	// Classes, Deployments and Sets are the names of the converted objects.
	Classes, Deployments, Sets []string
	// Pages holds the parts of the plan that are in ConfigMaps because they do not fit into the status. If the
	// ConfigMaps could not be read, Unread explains why.
	Pages  Pages
	Unread string
	// ListsAll is true if the text output must list every affected object and field. Otherwise the output has
	// examples.
	ListsAll bool
	// Now is the current time, for the age of the plan. If Now is zero, the output has no age.
	Now time.Time
	// Beginning is true if the command starts the migration after it has shown the plan.
	Beginning bool
	// accepting lists the accepted losses of this command, which the Migration does not contain yet.
	accepting []string
}

// Finding is a blocker, loss or note. Details has one line of text for each object or field that the finding affects.
type Finding struct {
	v1beta1.MigrationFinding
	// Accepted is true if the finding is a loss, and spec.accept of the Migration contains its code or all its
	// places.
	Accepted bool
	Details  []string
}

// PlanOf returns the plan of a Migration.
func PlanOf(m *v1beta1.Migration, pages Pages) Plan {
	p := Plan{Migration: m, Pages: pages}
	for _, f := range m.Status.Findings {
		p.Findings = append(p.Findings, Finding{MigrationFinding: f})
	}
	// If the status has fewer than maxFindings findings, it contains all codes of the plan. Pages with any other code
	// were written for another plan.
	full := len(p.Findings) >= maxFindings
	for _, d := range pages.Findings {
		i := slices.IndexFunc(p.Findings, func(f Finding) bool { return f.Level == d.Level && f.Code == d.Code })
		switch {
		case i < 0 && !full:
			continue
		case i < 0:
			i = len(p.Findings)
			p.Findings = append(p.Findings, Finding{MigrationFinding: v1beta1.MigrationFinding{Level: d.Level, Code: d.Code,
				Message: d.Text}})
		}
		f := &p.Findings[i]
		f.Details = append(f.Details, d.Text)
		if i >= maxFindings {
			f.Count++
		}
	}
	for i := range p.Findings {
		p.Findings[i].Accepted = p.Findings[i].acceptedBy(m.Spec.Accept)
	}
	for _, object := range pages.Manifests {
		switch object.Kind {
		case "MachineClass":
			p.Classes = append(p.Classes, object.Name)
		case "MachineDeployment":
			p.Deployments = append(p.Deployments, object.Name)
		case "MachineSet":
			p.Sets = append(p.Sets, object.Name)
		}
	}
	return p
}

// HasPlan reports whether the status has a plan for the current specification. After the stage Plan it returns true,
// because the user has agreed to the plan.
func HasPlan(m *v1beta1.Migration) bool {
	if m.Spec.Stage != v1beta1.MigrationPlan {
		return true
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPlanned)
	if c == nil || max(c.ObservedGeneration, m.Status.ObservedGeneration) < m.Generation ||
		c.ObservedGeneration > 0 && c.ObservedGeneration < m.Generation {
		return false
	}
	return c.Reason != v1beta1.ReasonPlanUnknown && (m.Status.PlanHash != "" || c.Reason == v1beta1.ReasonBlocked)
}

// Blockers returns the sorted codes of all blockers.
func (p Plan) Blockers() []string { return p.codes(func(f Finding) bool { return f.Level == blocker }) }

// Losses returns the sorted codes of all losses.
func (p Plan) Losses() []string { return p.codes(func(f Finding) bool { return f.Level == loss }) }

// Open returns the sorted codes of the losses that the user has not accepted.
func (p Plan) Open() []string {
	return p.codes(func(f Finding) bool { return f.Level == loss && !f.Accepted })
}

func (p Plan) codes(selected func(Finding) bool) (codes []string) {
	for _, f := range p.Findings {
		if selected(f) && !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	slices.Sort(codes)
	return codes
}

// Accept returns a copy of the plan in which the losses with these entries of spec.accept are accepted. If the plan
// has no such loss, Accept returns an error.
func (p Plan) Accept(entries []string) (Plan, error) {
	losses := p.Losses()
	for _, entry := range entries {
		code, place, limited := strings.Cut(entry, "@")
		switch {
		case slices.Contains(losses, code) && limited && !p.hasPlace(code, entry):
			return p, fmt.Errorf("--accept %q: the plan has no loss %s in %s; machinist migrate plan %s --all lists the "+
				"places", entry, code, place, Reference(p.Migration))
		case slices.Contains(losses, code):
		case slices.Contains(p.Blockers(), code):
			return p, fmt.Errorf("--accept %q: this is a Blocker, which cannot be accepted; the plan describes how to fix it",
				entry)
		case len(losses) == 0:
			return p, fmt.Errorf("--accept %q: the plan has no losses", entry)
		default:
			return p, fmt.Errorf("--accept %q: the plan has no loss with this code, only %s", entry,
				strings.Join(losses, ", "))
		}
	}
	p.Findings = slices.Clone(p.Findings)
	for i := range p.Findings {
		p.Findings[i].Accepted = p.Findings[i].acceptedBy(slices.Concat(p.Migration.Spec.Accept, entries))
	}
	p.accepting = entries
	return p, nil
}

// hasPlace reports whether an entry of spec.accept applies to a place of the losses with this code. If the places are
// unknown, the result is true.
func (p Plan) hasPlace(code, entry string) bool {
	return slices.ContainsFunc(p.Findings, func(f Finding) bool {
		places := f.places()
		return f.Level == loss && f.Code == code &&
			(len(places) == 0 || slices.ContainsFunc(places, f.isAccepted([]string{entry})))
	})
}

// acceptedBy reports whether the entries of spec.accept cover all places of a loss.
func (f Finding) acceptedBy(entries []string) bool {
	if f.Level != loss || slices.Contains(entries, f.Code) {
		return f.Level == loss
	}
	places, accepted := f.places(), f.isAccepted(entries)
	return len(places) == int(f.Count) &&
		!slices.ContainsFunc(places, func(place string) bool { return !accepted(place) })
}

// places returns the lines of all objects and fields that the finding affects, or nil if they are unknown.
func (f Finding) places() []string {
	if len(f.Details) == 0 && f.Count == 1 {
		return []string{f.Message}
	}
	return f.Details
}

// isAccepted returns a function that reports whether the entries of spec.accept cover a line such as "Machine/a
// spec.x: The field is unknown."
func (f Finding) isAccepted(entries []string) func(line string) bool {
	spec := v1beta1.MigrationSpec{Accept: entries}
	return func(line string) bool {
		where, _, _ := strings.Cut(line, ": ")
		object, path, _ := strings.Cut(where, " ")
		return spec.Accepts(f.Code, object, path)
	}
}

// Err returns an error if an obstacle prevents the start of the migration. After the start, the error is always nil.
func (p Plan) Err() error {
	if phase := p.Migration.Status.Phase; phase != "" && phase != v1beta1.MigrationPlanning {
		return nil
	}
	var obstacles []string
	if blockers := p.Blockers(); len(blockers) > 0 {
		obstacles = append(obstacles, "fix the Blockers: "+strings.Join(blockers, ", "))
	}
	if open := p.Open(); len(open) > 0 {
		obstacles = append(obstacles, fmt.Sprintf("accept the losses: machinist migrate run %s --accept %s",
			Reference(p.Migration), strings.Join(slices.Concat(p.accepting, open), ",")))
	}
	if len(obstacles) == 0 {
		c := meta.FindStatusCondition(p.Migration.Status.Conditions, v1beta1.ConditionPlanned)
		if c == nil || c.Reason != v1beta1.ReasonBlocked || len(p.Losses()) > 0 {
			return nil
		}
		obstacles = []string{c.Message} // The obstacle is not a finding.
	}
	return fmt.Errorf("migration %q cannot start: %w", p.Migration.Name, errors.New(strings.Join(obstacles, "; ")))
}

// Reference returns the arguments that identify a Migration on the command line.
func Reference(m *v1beta1.Migration) string { return m.Name + " -n " + m.Namespace }
