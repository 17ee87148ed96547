package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
)

// Levels of findings.
const (
	blocker = "Blocker"
	loss    = "Loss"
	note    = "Note"
)

// mostFindings is how many codes a status has at most.
const mostFindings = 100

// Plan is what a migrator found out about the fleet of another system.
type Plan struct {
	Migration *v1beta1.Migration
	Findings  []Finding
	// Classes, Deployments and Sets are the names of the converted objects.
	Classes, Deployments, Sets []string
	// Pages are what else was written about it. Unread says why they could not be read, empty if they could.
	Pages  Pages
	Unread string
	// All says that each place is shown where something was found.
	All bool
	// Beginning says that the command that shows the plan also begins the migration, if nothing is in the way.
	Beginning bool
}

// Finding is what a person has to know, with all the places where it was found.
type Finding struct {
	v1beta1.MigrationFinding
	// Accepted says that a person agreed to a loss.
	Accepted bool
	Details  []string
}

// PlanOf returns the plan of a Migration.
func PlanOf(m *v1beta1.Migration, pages Pages) Plan {
	p := Plan{Migration: m, Pages: pages}
	for _, f := range m.Status.Findings {
		p.Findings = append(p.Findings, Finding{MigrationFinding: f,
			Accepted: f.Level == loss && slices.Contains(m.Spec.Accept, f.Code)})
	}
	// A status with space left has all codes. What only the pages have is then of another plan.
	full := len(p.Findings) >= mostFindings
	for _, d := range pages.Findings {
		i := slices.IndexFunc(p.Findings, func(f Finding) bool { return f.Level == d.Level && f.Code == d.Code })
		switch {
		case i < 0 && !full:
			continue
		case i < 0:
			i = len(p.Findings)
			p.Findings = append(p.Findings, Finding{MigrationFinding: v1beta1.MigrationFinding{Level: d.Level, Code: d.Code,
				Message: d.Text}, Accepted: d.Level == loss && slices.Contains(m.Spec.Accept, d.Code)})
		}
		f := &p.Findings[i]
		f.Details = append(f.Details, d.Text)
		if i >= mostFindings {
			f.Count++
		}
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

// Planned reports whether the plan of a Migration is known and of its present specification. A migration that has gone
// on has the plan that was agreed to.
func Planned(m *v1beta1.Migration) bool {
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

// Blockers are the codes of what keeps the migration from beginning.
func (p Plan) Blockers() []string { return p.codes(func(f Finding) bool { return f.Level == blocker }) }

// Losses are the codes of what a person can agree to.
func (p Plan) Losses() []string { return p.codes(func(f Finding) bool { return f.Level == loss }) }

// Open are the codes of losses that nobody has agreed to.
func (p Plan) Open() []string {
	return p.codes(func(f Finding) bool { return f.Level == loss && !f.Accepted })
}

func (p Plan) codes(which func(Finding) bool) (codes []string) {
	for _, f := range p.Findings {
		if which(f) && !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	slices.Sort(codes)
	return codes
}

// Accept returns the plan as it is when these losses are accepted as well. A code that is not that of a loss is an
// error.
func (p Plan) Accept(codes []string) (Plan, error) {
	losses := p.Losses()
	for _, code := range codes {
		switch {
		case slices.Contains(losses, code):
		case slices.Contains(p.Blockers(), code):
			return p, fmt.Errorf("--accept %q: it is a Blocker, which cannot be accepted: see what to do about it in the plan",
				code)
		case len(losses) == 0:
			return p, fmt.Errorf("--accept %q: the plan has no loss", code)
		default:
			return p, fmt.Errorf("--accept %q: the plan has no loss of that code; it has %s", code, strings.Join(losses, ", "))
		}
	}
	p.Findings = slices.Clone(p.Findings)
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Level == loss && slices.Contains(codes, f.Code) {
			f.Accepted = true
		}
	}
	return p, nil
}

// Err says what keeps the migration from beginning, nil if nothing does or it has begun.
func (p Plan) Err() error {
	if phase := p.Migration.Status.Phase; phase != "" && phase != v1beta1.MigrationPlanning {
		return nil
	}
	var words []string
	if blockers := p.Blockers(); len(blockers) > 0 {
		words = append(words, "settle each Blocker: "+strings.Join(blockers, ", "))
	}
	if open := p.Open(); len(open) > 0 {
		words = append(words, fmt.Sprintf("accept each loss: machinist migrate run %s --accept %s", Reference(p.Migration),
			strings.Join(open, ",")))
	}
	if len(words) == 0 {
		c := meta.FindStatusCondition(p.Migration.Status.Conditions, v1beta1.ConditionPlanned)
		if c == nil || c.Reason != v1beta1.ReasonBlocked || len(p.Losses()) > 0 {
			return nil
		}
		words = []string{c.Message} // A reason that is no finding.
	}
	return fmt.Errorf("migration %q cannot begin: %w", p.Migration.Name, errors.New(strings.Join(words, "; ")))
}

// Reference names a Migration to a command.
func Reference(m *v1beta1.Migration) string { return m.Name + " -n " + m.Namespace }
