package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

// History lists the revisions of a deployment.
type History struct {
	// Kind is always RolloutHistory.
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Revisions []Revision `json:"revisions"`

	now time.Time
}

// Revision describes one revision of a deployment, with the MachineSet that implements it.
type Revision struct {
	Revision int64 `json:"revision"`
	// Current is true if the revision has the current template of the deployment.
	Current bool `json:"current"`
	// Set is the MachineSet of the revision.
	Set string `json:"set"`
	// Class is the class of the template. With an inline providerSpec, Provider is set instead. With a placement, Classes
	// has the classes of its options.
	Class    string   `json:"class,omitempty"`
	Classes  []string `json:"classes,omitempty"`
	Provider string   `json:"provider,omitempty"`
	Version  string   `json:"version,omitempty"`
	// Hash is the hash of the template, which also labels the machines.
	Hash string `json:"hash,omitempty"`
	// Replicas is the desired number of machines, and Machines is the actual number.
	Replicas int32 `json:"replicas"`
	Machines int32 `json:"machines"`
	// Created is the time at which the set was created.
	Created metav1.Time `json:"created"`
	// RolloutAfter is the value of spec.rolloutAfter if a restart created this revision. Otherwise, RolloutAfter is
	// empty.
	RolloutAfter string `json:"rolloutAfter,omitempty"`
	// ChangeCause is the annotation kubernetes.io/change-cause.
	ChangeCause string `json:"changeCause,omitempty"`
}

// HistoryOf returns the history of a deployment from the sets that it owns.
func HistoryOf(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, now time.Time) History {
	h := History{Kind: "RolloutHistory", Namespace: d.Namespace, Name: d.Name, Revisions: []Revision{}, now: now}
	ordered, current := machinedeployment.Revisions(d, sets, now)
	for i, set := range ordered {
		spec := &set.Spec.Template.Spec
		r := Revision{
			Revision: machinedeployment.Revision(set), Current: i == current, Set: set.Name, Provider: spec.Provider,
			Version: spec.Version,
			Hash:    set.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash], Replicas: set.ReplicasOrDefault(),
			Machines: set.Status.Replicas,
			Created:  set.CreationTimestamp, RolloutAfter: set.Annotations[v1beta1.AnnotationRolloutAfter],
			ChangeCause: set.Annotations[machinedeployment.AnnotationChangeCause],
			Classes:     set.Spec.Placement.ClassNames(),
		}
		if spec.ClassRef != nil {
			r.Class = spec.ClassRef.Name
		}
		if r.Current {
			// Prefer the deployment's annotation, because the set's annotation can be older. The controller copies the
			// annotation to the set only when it processes another change.
			r.ChangeCause = cmp.Or(d.Annotations[machinedeployment.AnnotationChangeCause], r.ChangeCause)
		}
		h.Revisions = append(h.Revisions, r)
	}
	return h
}

// maxClasses is the number of classes that a table shows.
const maxClasses = 2

// ClassText returns the class of a revision, or the classes of its placement. Unless all is true, the text has only the
// first classes and the number of the others.
func ClassText(class string, placed []string, all bool) string {
	shown := placed
	if len(shown) > maxClasses && !all {
		shown = shown[:maxClasses]
	}
	text := strings.Join(shown, ",")
	if more := len(placed) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(class, text)
}

// Text writes the history as a table.
func (h History) Text(w io.Writer, s printer.Style) error {
	if len(h.Revisions) == 0 {
		_, err := fmt.Fprintf(w, "machinedeployment/%s has no revision yet.\n", h.Name)
		return err
	}
	head := []string{"REVISION", "SET", "CLASS", "VERSION", "MACHINES", "AGE", "CHANGE-CAUSE"}
	if s.AllColumns {
		head = slices.Insert(head, 6, "HASH", "ROLLOUT-AFTER")
	}
	var rows [][]string
	for _, r := range h.Revisions {
		number := fmt.Sprint(r.Revision)
		if r.Current {
			number += s.Green(" (current)")
		}
		class := cmp.Or(ClassText(r.Class, r.Classes, s.AllColumns), r.Provider, "-")
		row := []string{number, r.Set, class, cmp.Or(r.Version, "-"), fmt.Sprint(r.Machines),
			printer.Age(h.now, r.Created.Time),
			cmp.Or(printer.Sanitize(r.ChangeCause), "<none>")}
		if s.AllColumns {
			row = slices.Insert(row, 6, cmp.Or(r.Hash, "-"), cmp.Or(printer.Sanitize(r.RolloutAfter), "-"))
		}
		rows = append(rows, row)
	}
	return printer.Table(w, head, rows)
}

// Detail is one revision with its template.
type Detail struct {
	// Kind is always RolloutRevision.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Revision  `json:",inline"`
	// Template is the deployment's template after a rollback to this revision.
	Template v1beta1.MachineTemplateSpec `json:"template"`
	// Placement is the deployment's placement after a rollback to this revision.
	Placement *v1beta1.Placement `json:"placement,omitempty"`
	// Changes are the fields of the template and the placement that the rollback would change.
	Changes []change.Change `json:"changes"`
}

// Show returns the details of one revision.
func Show(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, number int64, now time.Time) (*Detail, error) {
	set, err := find(d, sets, number)
	if err != nil {
		return nil, err
	}
	back := d.DeepCopy()
	machinedeployment.RollBack(back, set, now)
	changes, err := changesOf(d, back)
	if err != nil {
		return nil, err
	}
	h := HistoryOf(d, sets, now)
	at := slices.IndexFunc(h.Revisions, func(r Revision) bool { return r.Set == set.Name })
	return &Detail{Kind: "RolloutRevision", Namespace: d.Namespace, Name: d.Name, Revision: h.Revisions[at],
		Template: back.Spec.Template, Placement: back.Spec.Placement, Changes: changes}, nil
}

// changesOf returns the changes of the template and the placement.
func changesOf(d, back *v1beta1.MachineDeployment) ([]change.Change, error) {
	places, err := change.Diff("spec.placement", d.Spec.Placement, back.Spec.Placement)
	if err != nil {
		return nil, err
	}
	templates, err := change.Diff("spec.template", d.Spec.Template, back.Spec.Template)
	return append(places, templates...), err
}

// Text writes the details of the revision for a user.
func (v *Detail) Text(w io.Writer, s printer.Style) error {
	template, err := yaml.Marshal(v.Template)
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n",
		s.Bold(fmt.Sprintf("machinedeployment/%s revision %d, set %s", v.Name, v.Revision.Revision, v.Set)))
	if v.ChangeCause != "" {
		fmt.Fprintf(&out, "Change cause: %s\n", printer.Sanitize(v.ChangeCause))
	}
	if v.Placement != nil {
		placement, err := yaml.Marshal(map[string]*v1beta1.Placement{"placement": v.Placement})
		if err != nil {
			return err
		}
		template = append(template, placement...)
	}
	for line := range strings.Lines(string(template)) {
		fmt.Fprintf(&out, "  %s", strings.TrimRight(line, "\n")+"\n")
	}
	if len(v.Changes) == 0 {
		fmt.Fprintln(&out, "The current template of the deployment equals this revision.")
	} else {
		fmt.Fprintln(&out, "Going back to this revision would change:")
	}
	for _, c := range v.Changes {
		fmt.Fprintf(&out, "  %s\n", printer.Sanitize(c.String()))
	}
	_, err = io.WriteString(w, out.String())
	return err
}

var errNoHistory = errors.New("no rollout history found")

func find(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, number int64) (*v1beta1.MachineSet, error) {
	if len(sets) == 0 {
		return nil, fmt.Errorf("machinedeployment %q: %w", d.Name, errNoHistory)
	}
	var found *v1beta1.MachineSet
	var existing []string
	for _, set := range sets {
		n := machinedeployment.Revision(set)
		existing = append(existing, fmt.Sprint(n))
		if n == number {
			found = set
		}
	}
	if found == nil {
		return nil,
			fmt.Errorf("machinedeployment %q has no revision %d, only %s (spec.revisionHistoryLimit keeps %d old revisions)",
				d.Name, number, strings.Join(existing, ", "), d.RevisionHistoryLimitOrDefault())
	}
	return found, nil
}
