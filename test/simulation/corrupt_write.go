package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type corrupted struct {
	Corruption
	before, after any
	asks          *meaning
	// corruptionTime is the time of the corruption. isWaived is true if the oracle has skipped a rule because of the
	// corruption.
	corruptionTime time.Time
	isWaived       bool
	events         []string
}

var errNoSuchField = errors.New("the field does not exist or cannot be changed in this way")

type refusedError struct{ error }

func (c *corrupted) noteEvent(kind, reason string) {
	if c != nil && kind == "Warning" && !slices.Contains(c.events, reason) {
		c.events = append(c.events, reason)
	}
}

func (c *corrupted) allows(rule string, now time.Time) bool {
	if c == nil || c.asks == nil || !slices.Contains(c.asks.rules, rule) && (rule != "incident" || !c.asks.mayLose) ||
		c.asks.onlySoon && now.Sub(c.corruptionTime) > soonAfter {
		return false
	}
	c.isWaived = true
	return true
}

func (c *corrupted) permits(what func(*meaning) bool) bool {
	return c.asks != nil && (!c.asks.onlySoon || c.isWaived) && what(c.asks)
}

// corrupt changes a field with all permissions, subject to the API server's admission. If dry is true, the field is not
// changed, and the result only shows whether the change is possible.
func (w *World) corrupt(c Corruption, dry bool) error {
	all, err := w.storedObjects()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(o stored) bool {
		return o.Cluster == c.Field.Cluster && o.Kind == c.Field.Kind && o.Namespace == c.Field.Namespace &&
			o.Name == c.Field.Name
	})
	if i < 0 {
		return fmt.Errorf("%s: the object does not exist", c.Field)
	}
	return w.corruptOne(all, all[i], c, dry)
}

func (w *World) corruptOne(all []stored, o stored, c Corruption, dry bool) error {
	to, drop, possible := w.newValue(all, o, c.Field.Path, c.How)
	if !possible {
		return errNoSuchField
	}
	next := withValue(o.content, c.Field.Path, to, drop).(map[string]any)
	before, _ := valueAt(o.content, c.Field.Path)
	if !dry {
		deleted := o.object != nil && !o.object.GetDeletionTimestamp().IsZero()
		w.corrupted = &corrupted{Corruption: c, before: before, after: to, asks: requestedBy(c, deleted),
			corruptionTime: w.clock.at}
		w.disturbed, w.lastFault, w.stepsAtFault = w.clock.at, w.clock.at, w.steps
		w.logf("person: %s becomes %q, was %q", c.Field, shown(to), shown(before))
	}
	if o.Kind == "Lease" && !dry {
		return w.corruptLease(c, to, drop)
	}
	if o.Cluster == InCloud {
		if !dry {
			tags, _ := next["tags"].(map[string]any)
			w.retag(o.Name, tags)
		}
		return nil
	}
	return w.write(o.Cluster, next, c.Field.Path[0] == "status", dry)
}

func (w *World) write(cluster Cluster, next content, status, dry bool) error {
	server := w.serverOf(cluster)
	object, hand, revision := asObject(next), w.hand(server), server.Revision()
	var err error
	switch {
	case status && dry:
		err = hand.Status().Update(context.Background(), object, client.DryRunAll)
	case status:
		err = hand.Status().Update(context.Background(), object)
	case dry:
		err = hand.Update(context.Background(), object, client.DryRunAll)
	default:
		err = hand.Update(context.Background(), object)
	}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return refusedError{err}
	case err != nil:
		// The decoder of the API server rejects malformed content before admission.
		if strings.Contains(err.Error(), "unmarshal") || strings.Contains(err.Error(), "cannot convert") {
			return refusedError{err}
		}
		return err
	case !dry && server.Revision() == revision:
		return errNoSuchField // Defaulting or pruning restored the value.
	}
	return nil
}

func (w *World) retag(providerID string, tags content) {
	in := w.cloud.byID(providerID)
	in.madeFor = in.owner()
	text := func(name string) string { s, _ := tags[name].(string); return s }
	in.ClusterID, in.MachineUID, in.MachineKey = text("cluster"), types.UID(text("machineUID")), text("machine")
	w.cloud.changeCount++
}
