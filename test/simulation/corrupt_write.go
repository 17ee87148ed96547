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

// corrupted is the corruption of a run and what came of it. The nil pointer is that of a run without one.
type corrupted struct {
	Corruption
	before, after any
	asks          *meaning
	// at is when it happened, on the clock of the world, and waived says that a rule did not hold because of it.
	at     time.Time
	waived bool
	// events are the reasons of the warnings since.
	events []string
}

// errNoSuchField is that there is nothing to corrupt in this way.
var errNoSuchField = errors.New("there is no such field, or nothing that it could be changed to in this way")

// refusedError is that an API server does not admit a corruption.
type refusedError struct{ error }

func (c *corrupted) noteEvent(kind, reason string) {
	if c != nil && kind == "Warning" && !slices.Contains(c.events, reason) {
		c.events = append(c.events, reason)
	}
}

// allows reports whether the corrupted field asks for what a rule forbids.
func (c *corrupted) allows(rule string, now time.Time) bool {
	if c == nil || c.asks == nil || !slices.Contains(c.asks.rules, rule) && (rule != "incident" || !c.asks.lose) ||
		c.asks.atOnce && now.Sub(c.at) > soonAfter {
		return false
	}
	c.waived = true
	return true
}

// may reports whether the corrupted field asks for something.
func (c *corrupted) may(what func(*meaning) bool) bool {
	return c.asks != nil && (!c.asks.atOnce || c.waived) && what(c.asks)
}

// corrupt changes a field, with all rights and through all that an API server puts before its store. With dry it is
// only asked whether that is possible.
func (w *World) corrupt(c Corruption, dry bool) error {
	all, err := w.stored()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(o stored) bool {
		return o.Cluster == c.Field.Cluster && o.Kind == c.Field.Kind && o.Namespace == c.Field.Namespace &&
			o.Name == c.Field.Name
	})
	if i < 0 {
		return fmt.Errorf("%s: there is no such object", c.Field)
	}
	return w.corruptOne(all, all[i], c, dry)
}

func (w *World) corruptOne(all []stored, o stored, c Corruption, dry bool) error {
	to, drop, possible := w.changed(all, o, c.Field.Path, c.How)
	if !possible {
		return errNoSuchField
	}
	next := withValue(o.content, c.Field.Path, to, drop).(map[string]any)
	before, _ := valueAt(o.content, c.Field.Path)
	if !dry {
		deleted := o.object != nil && !o.object.GetDeletionTimestamp().IsZero()
		w.corrupted = &corrupted{Corruption: c, before: before, after: to, asks: askedBy(c, shown(to), deleted),
			at: w.clock.at}
		w.disturbed, w.lastFault, w.stepsAtFault = w.clock.at, w.clock.at, w.steps
		w.logf("person: %s becomes %q, and was %q", c.Field, shown(to), shown(before))
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

// write stores the content of an object, as a person does.
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
		// What is not even of the right form is refused by a decoder before anything else.
		if strings.Contains(err.Error(), "unmarshal") || strings.Contains(err.Error(), "cannot convert") {
			return refusedError{err}
		}
		return err
	case !dry && server.Revision() == revision:
		return errNoSuchField // Defaults or pruning made it what it was.
	}
	return nil
}

// retag gives an instance other tags.
func (w *World) retag(providerID string, tags content) {
	in := w.cloud.byID(providerID)
	in.madeFor = in.owner()
	text := func(name string) string { s, _ := tags[name].(string); return s }
	in.ClusterID, in.MachineUID, in.MachineKey = text("cluster"), types.UID(text("machineUID")), text("machine")
	w.cloud.changes++
}
