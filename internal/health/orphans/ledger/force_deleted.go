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

// AddForceDeleted adds what a Machine that is deleted by force may leave at the cloud to a page, of which only what
// names it counts. An entry of the same Machine stays as it is. It fails with a conflict if another write came in
// between.
func (b Book) AddForceDeleted(ctx context.Context, page Page, e Entry) error {
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
	e.bound()
	page.ForceDeleted = append(page.ForceDeleted, e)
	page.Written = e.FirstSeen
	page.bound()
	return b.write(ctx, found, missing, page)
}

// ForceDeleted returns what the pages of a provider for a namespace, of all shards, name of Machines that were deleted
// by force. Pages that cannot be read name none.
func (b Book) ForceDeleted(ctx context.Context, provider, namespace string) (all []Entry, err error) {
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

// Settle drops the entries in ForceDeleted of these Machines, by their UIDs, when the page is kept.
func (p *Page) Settle(uids map[string]bool) { p.settled = uids }

// rememberForceDeleted takes over what another page says of Machines that were deleted by force, unless it is settled.
func (p *Page) rememberForceDeleted(before Page) {
	for _, e := range before.ForceDeleted {
		if !p.settled[e.UID] && !slices.ContainsFunc(p.ForceDeleted, func(o Entry) bool { return o.UID == e.UID }) {
			p.ForceDeleted = append(p.ForceDeleted, e)
		}
	}
	slices.SortStableFunc(p.ForceDeleted, func(a, b Entry) int { return a.FirstSeen.Compare(b.FirstSeen) })
	p.bound()
}

// read returns the ConfigMap, or an empty one that is missing.
func (b Book) read(ctx context.Context) (found *corev1.ConfigMap, missing bool, err error) {
	found = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: Name}}
	err = b.Client.Get(ctx, client.ObjectKeyFromObject(found), found)
	if missing = apierrors.IsNotFound(err); err != nil && !missing {
		return nil, false, fmt.Errorf("read ConfigMap %s/%s: %w", b.Namespace, Name, err)
	}
	return found, missing, nil
}
