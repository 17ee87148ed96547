package fleet

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/cli/printer"
)

// boxes are the strings that draw the lines of the tree.
type boxes struct{ branch, lastBranch, line, blank string }

func boxesOf(style printer.Style) boxes {
	if style.ASCII {
		return boxes{"|- ", "`- ", "|  ", "   "}
	}
	return boxes{"├─ ", "└─ ", "│  ", "   "}
}

// Text writes a table with one row for each object. The first column draws the tree and has the names of the objects.
func (t Tree) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	if len(t.Items) == 0 {
		where := "in any namespace"
		if t.Namespace != "" {
			where = "in namespace " + t.Namespace + " (-A looks in all)"
		}
		fmt.Fprintf(out, "There are no machines, sets or deployments %s.\n", where)
	} else {
		head := []string{"NAME", "STATE", "READY", "NODE", "AGE", "WAITING FOR"}
		if style.AllColumns {
			head = append(head, "MEANING")
		}
		d := drawing{tree: t, boxes: boxesOf(style), style: style, places: slices.ContainsFunc(t.Items, Branch.isPlaced)}
		if d.places {
			head = slices.Insert(head, 4, "DOMAIN", "CLASS")
		}
		for _, b := range t.Items {
			d.draw(b, "", "")
		}
		_ = printer.Table(out, head, d.rows)
	}
	for _, u := range t.ReadErrors {
		fmt.Fprintf(out, "%s\n", style.Dim(printer.Sanitize(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

type drawing struct {
	tree  Tree
	boxes boxes
	style printer.Style
	// places adds the columns DOMAIN and CLASS.
	places bool
	rows   [][]string
}

// draw adds the rows of a branch. The row of the object starts with the string first, and the rows below start with
// the string next.
func (d *drawing) draw(b Branch, first, next string) {
	name := map[string]string{"MachineDeployment": "md/", "MachineSet": "ms/", "Machine": "machine/"}[b.Kind] + b.Name
	if d.tree.Namespace == "" && first == "" {
		name = b.Namespace + " " + name
	}
	state := d.state(b)
	waits := d.style.Warn(printer.Sanitize(b.Reason))
	if b.Since != nil {
		waits += " for " + printer.Age(d.tree.Now, *b.Since)
	}
	row := []string{d.style.Dim(first) + name, state, b.ready(), printer.Sanitize(b.Node),
		printer.Age(d.tree.Now, b.Created), waits}
	if d.places {
		row = slices.Insert(row, 4, b.Domain, b.Class)
	}
	if d.style.AllColumns {
		row = append(row, b.Explanation)
	}
	d.rows = append(d.rows, row)
	for i, child := range b.Children {
		if i == len(b.Children)-1 {
			d.draw(child, next+d.boxes.lastBranch, next+d.boxes.blank)
		} else {
			d.draw(child, next+d.boxes.branch, next+d.boxes.line)
		}
	}
}

func (d *drawing) state(b Branch) string {
	state := b.State
	switch {
	case b.Kind == "MachineSet" && b.Revision > 0 && b.State == "Current":
		return fmt.Sprintf("revision %d, current", b.Revision)
	case b.Kind == "MachineSet" && b.Revision > 0 && b.State == "Old":
		return d.style.Dim(fmt.Sprintf("revision %d, old", b.Revision))
	}
	return paint(state, d.style)
}
