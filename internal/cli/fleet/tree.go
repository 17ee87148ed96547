package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Tree is which object belongs to which other.
type Tree struct {
	// Now is the time at which it was so.
	Now time.Time `json:"now"`
	// Namespace is the one that was checked, empty for all.
	Namespace string `json:"namespace,omitempty"`
	// Items are what belongs to nothing else that was asked for.
	Items []Branch `json:"items"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// Branch is one object and what belongs to it.
type Branch struct {
	// Kind is MachineDeployment, MachineSet or Machine.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	// State is the phase of a machine, the rollout of a deployment as Status has it, and Current or Old of a set of a
	// deployment.
	State string `json:"state,omitempty"`
	// Revision is that of a set, or of a deployment's current set; 0 if there is none.
	Revision int64 `json:"revision,omitempty"`
	// Desired and Ready are of deployments and sets; Ready is 1 or 0 of a machine.
	Desired *int32 `json:"desired,omitempty"`
	Ready   int    `json:"ready"`
	// Node is that of a machine.
	Node string `json:"node,omitempty"`
	// Reason is what a machine waits for, Says the same in a sentence, Since since when; empty where it is settled.
	Reason      string     `json:"reason,omitempty"`
	Explanation string     `json:"explanation,omitempty"`
	Since       *time.Time `json:"since,omitempty"`

	Children []Branch `json:"children,omitempty"`
}

// TreeOf makes the view from what was read. kind and name choose one object, with what is above and below it; both
// empty is everything. It returns false if that object is not there.
func TreeOf(f Facts, kind, name string) (Tree, bool) {
	fam := familyOf(f)
	t := Tree{Now: f.Now, Namespace: f.Namespace, Unread: f.Unread, Items: []Branch{}}
	for i := range f.Deployments {
		d := &f.Deployments[i]
		s := deploymentOf(d, fam)
		replicas := d.ReplicasOrDefault()
		b := Branch{Kind: "MachineDeployment", Namespace: d.Namespace, Name: d.Name, Created: d.CreationTimestamp.UTC(),
			State: s.Rollout, Revision: d.Status.CurrentRevision, Desired: &replicas, Ready: s.Ready}
		current := CurrentSet(d, fam.Sets(d))
		for _, set := range fam.Sets(d) {
			state := "Old"
			if current != nil && set.UID == current.UID {
				state = "Current"
			}
			b.Children = append(b.Children, setBranch(set, state, fam))
		}
		slices.SortFunc(b.Children, func(x, y Branch) int {
			return cmp.Or(cmp.Compare(y.Revision, x.Revision), cmp.Compare(x.Name, y.Name))
		})
		t.Items = append(t.Items, b)
	}
	slices.SortFunc(t.Items, func(x, y Branch) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, set := range fam.LooseSets {
		t.Items = append(t.Items, setBranch(set, setOf(set, fam).Rollout, fam))
	}
	for _, m := range fam.LooseMachines {
		t.Items = append(t.Items, machineBranch(m))
	}
	if name == "" {
		return t, true
	}
	t.Items = pick(t.Items, kind, name)
	return t, len(t.Items) > 0
}

// pick leaves, of all branches, those on which the object is, and what is below it.
func pick(all []Branch, kind, name string) []Branch {
	var picked []Branch
	for _, b := range all {
		if b.Kind == kind && b.Name == name {
			picked = append(picked, b)
			continue
		}
		if b.Children = pick(b.Children, kind, name); len(b.Children) > 0 {
			picked = append(picked, b)
		}
	}
	return picked
}

func setBranch(set *v1beta1.MachineSet, state string, fam family) Branch {
	replicas := set.ReplicasOrDefault()
	revision, _ := strconv.ParseInt(set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	b := Branch{Kind: "MachineSet", Namespace: set.Namespace, Name: set.Name, Created: set.CreationTimestamp.UTC(),
		State: state, Revision: revision, Desired: &replicas}
	for _, m := range fam.Machines(set) {
		child := machineBranch(m)
		if m.DeletionTimestamp == nil {
			b.Ready += child.Ready
		}
		b.Children = append(b.Children, child)
	}
	return b
}

func machineBranch(m *v1beta1.Machine) Branch {
	x := MachineOf(m)
	b := Branch{Kind: "Machine", Namespace: x.Namespace, Name: x.Name, Created: x.Created, State: x.State, Node: x.Node,
		Reason: x.Reason, Explanation: x.Explanation, Since: x.Since}
	if x.Ready {
		b.Ready = 1
	}
	return b
}

// ready is how much of it is Ready, for people.
func (b Branch) ready() string {
	switch {
	case b.Desired != nil:
		return fmt.Sprintf("%d/%d", b.Ready, *b.Desired)
	case b.Ready == 1:
		return "True"
	}
	return "False"
}
