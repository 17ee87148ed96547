package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Tree is the tree of deployments, sets and machines.
type Tree struct {
	// Now is the time at which the objects were read.
	Now time.Time `json:"now"`
	// Namespace is the namespace that was read, or empty if all namespaces were read.
	Namespace string `json:"namespace,omitempty"`
	// Items are the roots of the tree: the objects that no other object in the tree owns.
	Items []Branch `json:"items"`
	// Unread contains a sentence for each kind of object that could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Branch is an object with the objects that it owns.
type Branch struct {
	// Kind is MachineDeployment, MachineSet or Machine.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	// State depends on the kind. For a machine, State is the phase. For a deployment, or a set that no deployment owns,
	// State is Scaled.Rollout. For a set that a deployment owns, State is Current or Old.
	State string `json:"state,omitempty"`
	// Revision is the revision of a set, or the current revision of a deployment. It is 0 if there is no revision.
	Revision int64 `json:"revision,omitempty"`
	// Desired is the value of spec.replicas of a deployment or set, and Ready is the number of its Ready machines. For a
	// machine, Ready is 1 if the machine is Ready, and otherwise 0.
	Desired *int32 `json:"desired,omitempty"`
	Ready   int    `json:"ready"`
	// Node is the name of a machine's Node.
	Node string `json:"node,omitempty"`
	// Reason is the reason why a machine waits, as one word. Explanation is a sentence about the reason. Since is the time
	// at which the wait began. All three fields are empty if the machine is not waiting.
	Reason      string     `json:"reason,omitempty"`
	Explanation string     `json:"explanation,omitempty"`
	Since       *time.Time `json:"since,omitempty"`

	Children []Branch `json:"children,omitempty"`
}

// TreeOf computes the tree from the facts. If kind and name are empty, the tree contains all objects. Otherwise they
// select one object, and the tree contains only this object, its owners and the objects that it owns. If the selected
// object does not exist, TreeOf returns false.
func TreeOf(f Facts, kind, name string) (Tree, bool) {
	inv := inventoryOf(f)
	t := Tree{Now: f.Now, Namespace: f.Namespace, Unread: f.Unread, Items: []Branch{}}
	for i := range f.Deployments {
		d := &f.Deployments[i]
		s := deploymentOf(d, inv)
		replicas := d.ReplicasOrDefault()
		b := Branch{Kind: "MachineDeployment", Namespace: d.Namespace, Name: d.Name, Created: d.CreationTimestamp.UTC(),
			State: s.Rollout, Revision: d.Status.CurrentRevision, Desired: &replicas, Ready: s.Ready}
		current := CurrentSet(d, inv.Sets(d))
		for _, set := range inv.Sets(d) {
			state := "Old"
			if current != nil && set.UID == current.UID {
				state = "Current"
			}
			b.Children = append(b.Children, setBranch(set, state, inv))
		}
		slices.SortFunc(b.Children, func(x, y Branch) int {
			return cmp.Or(cmp.Compare(y.Revision, x.Revision), cmp.Compare(x.Name, y.Name))
		})
		t.Items = append(t.Items, b)
	}
	slices.SortFunc(t.Items, func(x, y Branch) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, set := range inv.LooseSets {
		t.Items = append(t.Items, setBranch(set, setOf(set, inv).Rollout, inv))
	}
	for _, m := range inv.LooseMachines {
		t.Items = append(t.Items, machineBranch(m))
	}
	if name == "" {
		return t, true
	}
	t.Items = selectBranches(t.Items, kind, name)
	return t, len(t.Items) > 0
}

// selectBranches reduces a tree to the object with the given kind and name, its owners, and the objects that it owns.
func selectBranches(all []Branch, kind, name string) []Branch {
	var picked []Branch
	for _, b := range all {
		if b.Kind == kind && b.Name == name {
			picked = append(picked, b)
			continue
		}
		if b.Children = selectBranches(b.Children, kind, name); len(b.Children) > 0 {
			picked = append(picked, b)
		}
	}
	return picked
}

func setBranch(set *v1beta1.MachineSet, state string, inv inventoryAt) Branch {
	replicas := set.ReplicasOrDefault()
	revision, _ := strconv.ParseInt(set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	b := Branch{Kind: "MachineSet", Namespace: set.Namespace, Name: set.Name, Created: set.CreationTimestamp.UTC(),
		State: state, Revision: revision, Desired: &replicas}
	for _, m := range inv.Machines(set) {
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

// ready returns the text for the column READY.
func (b Branch) ready() string {
	switch {
	case b.Desired != nil:
		return fmt.Sprintf("%d/%d", b.Ready, *b.Desired)
	case b.Ready == 1:
		return "True"
	}
	return "False"
}
