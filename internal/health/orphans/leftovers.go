package orphans

import (
	"context"
	"strings"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// Leftovers are the parts of one machine in one scope that belong to no instance.
type Leftovers struct {
	// ID is the same in every pass. ID contains a space, so it cannot be a provider ID.
	ID    string
	Parts []provider.Leftover
}

// groupLeftovers groups the parts by machine and class, because one call of Delete removes all parts of a group. The
// map seen contains the parts that were already found in another scope. groupLeftovers skips these parts, and adds
// all other parts to the map.
func groupLeftovers(source string, parts []provider.Leftover, seen map[string]bool) (all []Leftovers) {
	at := map[string]int{}
	for _, part := range parts {
		if seen[part.ID] {
			continue
		}
		seen[part.ID] = true
		id := strings.Join([]string{"parts of", part.MachineKey, string(part.MachineUID), "in", part.ClusterID, "by", source},
			" ")
		i, known := at[id]
		if !known {
			i = len(all)
			at[id] = i
			all = append(all, Leftovers{ID: id})
		}
		all[i].Parts = append(all[i].Parts, part)
	}
	return all
}

// subject returns a single Decision for all leftovers of a Machine. The launch time of the Decision is the creation
// time of the youngest part. If the creation time of a part is unknown, the age counts from the first observation.
func (l *Leftovers) subject() Decision {
	d := Decision{ID: l.ID}
	var youngest time.Time
	known := true
	for _, part := range l.Parts {
		d.Instance.ClusterID, d.Instance.MachineUID, d.Instance.MachineKey = part.ClusterID, part.MachineUID, part.MachineKey
		d.Parts = append(d.Parts, part.ID)
		known = known && !part.LaunchTime.IsZero()
		if part.LaunchTime.After(youngest) {
			youngest = part.LaunchTime
		}
	}
	if known {
		d.Instance.LaunchTime = youngest
	}
	return d
}

func (d *Decision) name() string {
	if len(d.Parts) == 0 {
		return d.Instance.ProviderID
	}
	// Resource names often differ only at their end.
	short := make([]string, len(d.Parts))
	for i, part := range d.Parts {
		short[i] = part[strings.LastIndex(part, "/")+1:]
	}
	return "parts of machine " + d.Instance.MachineKey + " without an instance (" + strings.Join(short, " ") + ")"
}

// removeLeftovers removes the parts of a machine without an instance. removeLeftovers first reads from the cloud
// whether an instance of the machine exists, and only then removes the parts. The driver compares the tags of each
// part.
func (c *Collector) removeLeftovers(ctx context.Context, s *scope, d *Decision) (bool, error) {
	machine := machineOf(&d.Instance)
	_, err := c.Cloud.Get(ctx, provider.GetRequest{Machine: machine, Class: s.class, ClusterID: c.Rules.ClusterID})
	switch {
	case err == nil:
		c.log(ctx).Info("Not removing leftovers: their machine has an instance that the list lacks", "parts", d.Parts,
			"uid", machine.UID)
		return false, nil
	case !provider.IsNotFound(err):
		return false, err
	}
	_, err = c.Cloud.Delete(ctx, provider.DeleteRequest{Machine: machine, Class: s.class, ClusterID: c.Rules.ClusterID})
	return err == nil, err
}
