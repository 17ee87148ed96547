package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Tree shows which objects own which: deployments own sets, and sets own machines.
type Tree struct {
	// Now is the time when the objects were read.
	Now time.Time `json:"now"`
	// Namespace is the namespace that was read. Empty means all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Items are the objects whose owner is not in the tree.
	Items []Branch `json:"items"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`
}

// Branch is a node of the tree: an object and, as Children, the objects that it owns.
type Branch struct {
	// Kind is MachineDeployment, MachineSet or Machine.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	// State is the phase of a machine, or Scaled.Rollout of a deployment or a set without a deployment. The set of a
	// deployment has the state Current or Old.
	State string `json:"state,omitempty"`
	// Revision is the revision of a set, or the current revision of a deployment. 0 means none.
	Revision int64 `json:"revision,omitempty"`
	// Desired is spec.replicas of a deployment or set, and Ready its number of Ready machines. Ready is 1 for a Ready
	// machine.
	Desired *int32 `json:"desired,omitempty"`
	Ready   int    `json:"ready"`
	// Node is the name of a machine's Node.
	Node string `json:"node,omitempty"`
	// Domain and Class are the place of a machine that belongs to a placement.
	Domain string `json:"domain,omitempty"`
	Class  string `json:"class,omitempty"`
	// Reason says in one word why a machine waits. Explanation describes the reason in a sentence. Since holds the time
	// when the wait began. The fields Reason, Explanation and Since are empty if the machine does not wait.
	Reason      string     `json:"reason,omitempty"`
	Explanation string     `json:"explanation,omitempty"`
	Since       *time.Time `json:"since,omitempty"`

	Children []Branch `json:"children,omitempty"`
}

// TreeOf computes the tree. If kind and name are empty, the tree has all objects. Otherwise the tree has only the named
// object, its owners, and the objects that it owns. TreeOf returns false if the named object does not exist.
func TreeOf(f Facts, kind, name string) (Tree, bool) {
	inv := inventoryOf(f)
	t := Tree{Now: f.Now, Namespace: f.Namespace, ReadErrors: f.ReadErrors, Items: []Branch{}}
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
	if x.Domain != "" {
		b.Domain, b.Class = x.Domain, x.Class
	}
	return b
}

func (b Branch) ready() string {
	switch {
	case b.Desired != nil:
		return fmt.Sprintf("%d/%d", b.Ready, *b.Desired)
	case b.Ready == 1:
		return "True"
	}
	return "False"
}

// isPlaced reports whether a machine of the branch belongs to a placement.
func (b Branch) isPlaced() bool {
	return b.Domain != "" || slices.ContainsFunc(b.Children, Branch.isPlaced)
}
