// Package upgrade computes the kubelet versions of fleets, their skew against the control plane, and the steps to
// another version.
package upgrade

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/inventory"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/versionskew"
	"machinist.dev/machinist/internal/platform/wording"
)

// Input is what a plan is computed from.
type Input struct {
	Deployments []v1beta1.MachineDeployment
	Sets        []v1beta1.MachineSet
	Machines    []v1beta1.Machine
	// ControlPlane is the version of the API server of the target cluster. To is the wanted version of the kubelets.
	ControlPlane, To string
	ReadErrors       []string
	// AllNamespaces adds a column with the namespace to the text.
	AllNamespaces bool
}

// Plan lists the steps of all fleets to a version.
type Plan struct {
	// Kind is always UpgradePlan.
	Kind string `json:"kind"`
	// ControlPlane is the version of the API server of the target cluster.
	ControlPlane string `json:"controlPlane"`
	// To is the wanted version of the kubelets.
	To     string  `json:"to"`
	Fleets []Fleet `json:"fleets"`
	// ToDo lists what must be done before fleets can be upgraded, if it does not concern a single fleet.
	ToDo []string `json:"toDo,omitempty"`
	// ReadErrors holds one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`

	allNamespaces bool
}

// Fleet is a MachineDeployment, or a MachineSet without a MachineDeployment.
type Fleet struct {
	Namespace string `json:"namespace"`
	// Name is the kind and the name, such as machinedeployment/web.
	Name string `json:"name"`
	// Version is the version in the template, or empty.
	Version string `json:"version,omitempty"`
	// Kubelets counts the machines by the version of their kubelet. Machines without a Node are left out.
	Kubelets []v1beta1.VersionCount `json:"kubelets"`
	// Older is by how many minor versions the oldest kubelet is older than the control plane. A negative number means
	// that the newest kubelet is newer.
	Older int `json:"older"`
	// Supported is false if Kubernetes does not support the skew.
	Supported bool `json:"supported"`
	// Steps are the versions to which the machines must be updated, one after the other. If the machines have the wanted
	// minor version already, the only step is the wanted version.
	Steps []Step `json:"steps"`
	// ToDo lists what must be changed before the steps can be carried out.
	ToDo []string `json:"toDo"`
}

// Step is one rollout.
type Step struct {
	// Version is the version, or only the minor version if spec.versionSteps lacks it.
	Version string `json:"version"`
	// ClassName is the class of the step, if it differs from that of the template.
	ClassName string `json:"className,omitempty"`
	// Missing is true if spec.versionSteps lacks the version.
	Missing bool `json:"missing,omitempty"`
}

// New computes the plan.
func New(in Input) *Plan {
	p := &Plan{Kind: "UpgradePlan", ControlPlane: in.ControlPlane, To: in.To, Fleets: []Fleet{}, ReadErrors: in.ReadErrors,
		allNamespaces: in.AllNamespaces}
	if versionskew.IsNewer(in.To, in.ControlPlane) {
		minor, _ := versionskew.MinorOf(in.To)
		p.ToDo = append(p.ToDo, fmt.Sprintf("Upgrade the control plane to %s first: it has %s, and kubelets must not be newer.",
			minor, in.ControlPlane))
	}
	all := inventory.Join(in.Deployments, in.Sets, in.Machines)
	for i := range in.Deployments {
		d := &in.Deployments[i]
		f := newFleet(d.Namespace, "machinedeployment/"+d.Name, d.Spec.Template.Spec.Version, all.AllMachines(d))
		f.addSkew(in.ControlPlane)
		f.addSteps(d, in.To)
		p.Fleets = append(p.Fleets, f)
	}
	for _, set := range all.LooseSets {
		f := newFleet(set.Namespace, "machineset/"+set.Name, set.Spec.Template.Spec.Version, all.Machines(set))
		f.addSkew(in.ControlPlane)
		if f.needs(in.To) {
			f.Steps = append(f.Steps, Step{Version: in.To})
			f.ToDo = append(f.ToDo, "A MachineSet replaces no machines after a change of its template. Change "+
				"spec.template.spec.version to "+in.To+", and replace each machine with machinist replace.")
		}
		p.Fleets = append(p.Fleets, f)
	}
	slices.SortStableFunc(p.Fleets, func(a, b Fleet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return p
}

func newFleet(namespace, name, version string, machines []*v1beta1.Machine) Fleet {
	f := Fleet{Namespace: namespace, Name: name, Version: version, Kubelets: []v1beta1.VersionCount{}, Supported: true,
		Steps: []Step{}, ToDo: []string{}}
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() || m.Status.Version == "" {
			continue
		}
		i := slices.IndexFunc(f.Kubelets, func(c v1beta1.VersionCount) bool { return c.Version == m.Status.Version })
		if i < 0 {
			i = len(f.Kubelets)
			f.Kubelets = append(f.Kubelets, v1beta1.VersionCount{Version: m.Status.Version})
		}
		f.Kubelets[i].Count++
	}
	slices.SortFunc(f.Kubelets, func(a, b v1beta1.VersionCount) int {
		x, _ := versionskew.MinorOf(a.Version)
		y, _ := versionskew.MinorOf(b.Version)
		return cmp.Or(x.Compare(y), cmp.Compare(a.Version, b.Version))
	})
	return f
}

func (f *Fleet) addSkew(controlPlane string) {
	server, known := versionskew.MinorOf(controlPlane)
	for i, kubelet := range f.Kubelets {
		minor, ok := versionskew.MinorOf(kubelet.Version)
		if !known || !ok {
			continue
		}
		if older := int(server.Minor) - int(minor.Minor); i == 0 || older < 0 {
			f.Older = older
		}
		f.Supported = f.Supported && versionskew.Violation(kubelet.Version, controlPlane) == ""
	}
}

// needs reports whether the template or a kubelet has another version.
func (f *Fleet) needs(to string) bool {
	return f.Version != to ||
		slices.ContainsFunc(f.Kubelets, func(c v1beta1.VersionCount) bool { return c.Version != to })
}

// addSteps adds the steps from the oldest kubelet to the wanted version.
func (f *Fleet) addSteps(d *v1beta1.MachineDeployment, to string) {
	if !f.needs(to) {
		return
	}
	target, _ := versionskew.MinorOf(to)
	oldest, known := versionskew.MinorOf(f.Version)
	if len(f.Kubelets) > 0 {
		oldest, known = versionskew.MinorOf(f.Kubelets[0].Version)
	}
	inPlace := d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace
	if known && oldest.Major == target.Major && (len(d.Spec.VersionSteps) > 0 || inPlace) {
		for minor := oldest.Next(); minor.Compare(target) < 0; minor = minor.Next() {
			step := Step{Version: minor.String(), Missing: true}
			for _, listed := range d.Spec.VersionSteps {
				if of, ok := versionskew.MinorOf(listed.Version); ok && of == minor {
					step = Step{Version: listed.Version, ClassName: listed.ClassName}
				}
			}
			f.Steps = append(f.Steps, step)
			if step.Missing {
				f.ToDo = append(f.ToDo, fmt.Sprintf("Add a version of %s to spec.versionSteps.", minor))
			}
		}
	}
	f.Steps = append(f.Steps, Step{Version: to})
	if newest := f.newest(); known && newest.Compare(target) > 0 && inPlace && !newest.IsAdjacent(target) {
		f.ToDo = append(f.ToDo, fmt.Sprintf("The strategy InPlace changes a machine by one minor version at a time: set "+
			"spec.template.spec.version to a version between %s and %s first.", target, newest))
	}
	if f.Version != to {
		f.ToDo = append(f.ToDo, fmt.Sprintf("Set spec.template.spec.version to %s.", to))
	}
}

func (f *Fleet) newest() versionskew.Minor {
	if len(f.Kubelets) == 0 {
		return versionskew.Minor{}
	}
	minor, _ := versionskew.MinorOf(f.Kubelets[len(f.Kubelets)-1].Version)
	return minor
}

// Text writes the plan as a table, followed by what must be done.
func (p *Plan) Text(w io.Writer, s printer.Style) error {
	if _, err := fmt.Fprintf(w, "Control plane: %s. Upgrade to: %s.\n\n", printer.Sanitize(cmp.Or(p.ControlPlane, "unknown")),
		p.To); err != nil {
		return err
	}
	if len(p.Fleets) == 0 {
		_, err := fmt.Fprintln(w, "There are no deployments and no sets.")
		return err
	}
	head := []string{"FLEET", "KUBELETS", "SKEW", "STEPS"}
	if p.allNamespaces {
		head = append([]string{"NAMESPACE"}, head...)
	}
	var rows [][]string
	for _, f := range p.Fleets {
		row := []string{f.Name, f.kubelets(), f.skew(s), f.steps(s)}
		if p.allNamespaces {
			row = append([]string{f.Namespace}, row...)
		}
		rows = append(rows, row)
	}
	if err := printer.Table(w, head, rows); err != nil {
		return err
	}
	var out strings.Builder
	toDo := slices.Clone(p.ToDo)
	for _, f := range p.Fleets {
		name := f.Name
		if p.allNamespaces {
			name += " in " + f.Namespace
		}
		for _, text := range f.ToDo {
			toDo = append(toDo, name+": "+text)
		}
	}
	if len(toDo) > 0 {
		fmt.Fprintln(&out, "\nTo do:")
	}
	for _, text := range toDo {
		fmt.Fprintln(&out, "  "+printer.Sanitize(text))
	}
	for _, text := range p.ReadErrors {
		fmt.Fprintln(&out, s.Dim(printer.Sanitize(text)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (f *Fleet) kubelets() string {
	counts := make([]string, len(f.Kubelets))
	for i, c := range f.Kubelets {
		counts[i] = fmt.Sprintf("%s (%d)", printer.Sanitize(c.Version), c.Count)
	}
	return cmp.Or(strings.Join(counts, ", "), "-")
}

func (f *Fleet) skew(s printer.Style) string {
	text := "none"
	switch {
	case len(f.Kubelets) == 0:
		return "-"
	case f.Older > 0:
		text = wording.Count(int32(f.Older), "minor version") + " older"
	case f.Older < 0:
		text = wording.Count(int32(-f.Older), "minor version") + " newer"
	}
	if !f.Supported {
		return s.Red(text + ", not supported")
	}
	return text
}

func (f *Fleet) steps(s printer.Style) string {
	steps := make([]string, len(f.Steps))
	for i, step := range f.Steps {
		steps[i] = step.Version
		if step.Missing {
			steps[i] = s.Red(step.Version + " (missing)")
		}
	}
	return cmp.Or(strings.Join(steps, ", "), "none")
}
