package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type corrupted struct {
	Corruption
	before, after any
	asks          *meaning
	// corruptionTime is the time of the corruption. isWaived is true if the oracle has skipped a rule because of the
	// corruption.
	corruptionTime time.Time
	isWaived       bool
	// related contains the corrupted object, its owners and its children at the time of the corruption.
	related map[string]bool
}

var errNoSuchField = errors.New("the field does not exist or cannot be changed in this way")

type refusedError struct{ error }

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

// givesUp reports whether the corruption permits that an instance or a Node remains after its machine.
func (c *corrupted) givesUp() bool {
	return c != nil && c.permits(func(m *meaning) bool { return m.mayLeak })
}

// mayLeak reports whether the corruption may make Machinist forget a Node whose instance is gone already.
func (c *corrupted) mayLeak() bool { return c != nil && c.asks != nil && c.asks.mayLeak }

// markedAgain reports whether the corruption may have written the label that marks the objects of a migration. The
// migrator does not remove this label after the end of the migration.
func (c *corrupted) markedAgain(o client.Object, label string) bool {
	return c != nil && label == v1beta1.LabelMigration && c.Field.objectName() == objectName(o)
}

// isToken reports whether the corruption changed the owner of a bootstrap token. Kubernetes deletes this token when it
// expires.
func (c *corrupted) isToken(name string) bool {
	return c != nil && c.asks != nil && c.Field.Cluster == InTarget && c.Field.Kind == "Secret" && c.Field.Name == name
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
		w.corrupted = &corrupted{Corruption: c, before: before, after: to, asks: requestedBy(c), corruptionTime: w.clock.at,
			related: relatedTo(all, c.Field.objectName())}
		w.disturbed, w.lastFault, w.stepsAtFault = w.clock.at, w.clock.at, w.steps
		if end := w.clock.at.Add(within); end.After(w.mustEnd) {
			w.mustEnd = end
		}
		w.logf("person: %s becomes %q, was %q", c.Field, shown(to), shown(before))
	}
	if o.Kind == "Lease" && !dry {
		return w.corruptLease(c, to, drop)
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
