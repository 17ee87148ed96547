package ledger

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AddForceDeleted adds the entry of a Machine that is being force-deleted to the ledger. The fields Provider, Namespace
// and Shard of page select the stored page. If this page already contains the entry, nothing is written.
// AddForceDeleted fails with a conflict if another process wrote at the same time.
func (b Store) AddForceDeleted(ctx context.Context, page Page, e Entry) error {
	found, missing, err := b.read(ctx)
	if err != nil {
		return err
	}
	if before, err := Decode(found.Data[page.key()]); err == nil {
		page = before
	}
	if slices.ContainsFunc(page.ForceDeleted, func(other Entry) bool { return other.UID == e.UID }) {
		return nil
	}
	e.limit()
	page.ForceDeleted = append(page.ForceDeleted, e)
	page.WriteTime = e.FirstSeen
	page.limit()
	return b.write(ctx, found, missing, page)
}

// ForceDeleted returns the force-deleted Machines from the pages of all shards. Unreadable pages are ignored.
func (b Store) ForceDeleted(ctx context.Context, provider, namespace string) (all []Entry, err error) {
	found, _, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, text := range found.Data {
		if page, err := Decode(text); err == nil && page.Provider == provider && page.Namespace == namespace {
			all = append(all, page.ForceDeleted...)
		}
	}
	return all, nil
}

// DropForceDeleted must be called before Keep if the ForceDeleted entries with these UIDs are no longer needed. Keep
// then removes them from the ledger.
func (p *Page) DropForceDeleted(uids map[string]bool) { p.finishedMachines = uids }

func (p *Page) rememberForceDeleted(before Page) {
	for _, e := range before.ForceDeleted {
		if !p.finishedMachines[e.UID] && !slices.ContainsFunc(p.ForceDeleted, func(o Entry) bool { return o.UID == e.UID }) {
			p.ForceDeleted = append(p.ForceDeleted, e)
		}
	}
	slices.SortStableFunc(p.ForceDeleted, func(a, b Entry) int { return a.FirstSeen.Compare(b.FirstSeen) })
	p.limit()
}

func (b Store) read(ctx context.Context) (found *corev1.ConfigMap, missing bool, err error) {
	found = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: Name}}
	err = b.Client.Get(ctx, client.ObjectKeyFromObject(found), found)
	if missing = apierrors.IsNotFound(err); err != nil && !missing {
		return nil, false, fmt.Errorf("read ConfigMap %s/%s: %w", b.Namespace, Name, err)
	}
	return found, missing, nil
}
