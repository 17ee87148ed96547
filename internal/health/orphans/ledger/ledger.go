// Package ledger stores what the last pass of the orphan collection found, so that users can read it. Only the
// provider's process can list the cloud, and users have no access to that process.
//
// The ledger is a ConfigMap in the namespace of the leases, with one key for each provider. A pass reads it once and
// writes it only after a change.
package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Name is the name of the ConfigMap.
	Name = "machinist-orphans"
	// MostEntries is the maximum number of entries on a page.
	MostEntries = 100
	// MostForceDeleted is the maximum number of force-deleted Machines on a page.
	MostForceDeleted = 1000
	// maxStringLength is the maximum length of a string from the cloud, in bytes.
	maxStringLength = 300
	maxParts        = 20
)

// Page is the result of a provider's last pass. Its content changes only if the result changes.
type Page struct {
	// Provider is the provider whose instances were listed. Namespace is the only namespace of its Machines, or empty
	// for all.
	Provider  string `json:"provider"`
	Namespace string `json:"namespace,omitempty"`
	// Shard is the part of the namespaces that was listed, such as 0-of-4, or empty for all.
	Shard string `json:"shard,omitempty"`
	// Written is when the page last changed.
	Written time.Time `json:"written"`
	// Period is the time between two passes, in seconds.
	Period int64 `json:"periodSeconds"`
	// Stopped explains why the process does not look for orphans. If set, the other results are unknown.
	Stopped string `json:"stopped,omitempty"`
	// Unlisted are the classes, and machines without a class, whose instances could not be listed.
	Unlisted []Unlisted `json:"unlisted,omitempty"`
	// MostOrphaned means that most instances had no Machine, so that an administrator must confirm their removal. It
	// backs up the condition OrphanRemovalBlocked of the classes.
	MostOrphaned bool `json:"mostOrphaned,omitempty"`
	// Total is the number of orphans and duplicates. Entries describe at most MostEntries of them.
	Total   int     `json:"total"`
	Entries []Entry `json:"entries,omitempty"`
	// ForceDeleted are force-deleted Machines that may have left something in the cloud, which the user also wanted to
	// remove. An entry stays until a list for its Source shows nothing of the Machine. Beyond MostForceDeleted, the
	// oldest entries are dropped.
	ForceDeleted []Entry `json:"forceDeleted,omitempty"`

	// finished holds the UIDs in ForceDeleted that left nothing in the cloud.
	finished map[string]bool
}

// Unlisted is a class, or a machine without a class, whose instances could not be listed. Why is a reason or code.
type Unlisted struct {
	Source string `json:"source"`
	Why    string `json:"why"`
}

// Entry is one instance, or the leftovers of one machine.
type Entry struct {
	// ProviderID is empty for leftovers.
	ProviderID string   `json:"providerID"`
	Parts      []string `json:"parts,omitempty"`
	// Machine is the namespace/name of the Machine in the tags. UID is the UID in the tags.
	Machine string `json:"machine"`
	UID     string `json:"uid"`
	// Source is the namespace/name of the class with which the entry was found, or of a machine without a class.
	Source string `json:"source"`
	// FirstSeen is when the entry was first found. Launched is the creation time that the cloud reports.
	FirstSeen time.Time  `json:"firstSeen"`
	Launched  *time.Time `json:"launched,omitempty"`
	// Outcome is the decision of the pass: an Outcome of package orphans.
	Outcome string `json:"outcome"`
}

// Book reads and writes the ledger.
type Book struct {
	// Client reads from and writes to the API server.
	Client client.Client
	// Namespace is the namespace of the leases.
	Namespace string
}

// Key returns the key of a provider's page in the ConfigMap. Provider and namespace names have no dots, so keys never
// collide.
func Key(provider, namespace string) string {
	if namespace == "" {
		return provider
	}
	return provider + "." + namespace
}

// key returns the key of the page. Each shard has its own page.
func (p *Page) key() string {
	if p.Shard == "" {
		return Key(p.Provider, p.Namespace)
	}
	return p.Provider + shardInfix + p.Shard
}

// shardInfix marks the keys of shards. Namespace names have no dots.
const shardInfix = ".shard."

// outdated returns the keys of pages about the same instances that ended processes wrote with another number of shards.
func (p *Page) outdated(data map[string]string) (keys []string) {
	_, count, _ := strings.Cut(p.Shard, "-of-")
	for key := range data {
		of, shard, sharded := strings.Cut(key, shardInfix)
		_, counted, _ := strings.Cut(shard, "-of-")
		switch {
		case sharded && of == p.Provider && p.Namespace == "" && counted != count,
			!sharded && key == p.Provider && p.Shard != "":
			keys = append(keys, key)
		}
	}
	return keys
}

const maxAttempts = 3

// Keep writes a page unless the stored page has the same content.
func (b Book) Keep(ctx context.Context, page Page) error {
	page.limit()
	var err error
	for range maxAttempts {
		if err = b.keep(ctx, page); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return err
}

func (b Book) keep(ctx context.Context, page Page) error {
	key := page.key()
	found, missing, err := b.read(ctx)
	if err != nil {
		return err
	}
	outdated := page.outdated(found.Data)
	page.ForceDeleted = nil
	for _, old := range outdated {
		if before, err := Decode(found.Data[old]); err == nil {
			page.rememberForceDeleted(before)
		}
	}
	if before, err := Decode(found.Data[key]); err == nil {
		page.remember(before)
		if page.equal(before) && len(outdated) == 0 {
			return nil
		}
	}
	for _, old := range outdated {
		delete(found.Data, old)
	}
	return b.write(ctx, found, missing, page)
}

func (b Book) write(ctx context.Context, found *corev1.ConfigMap, missing bool, page Page) error {
	text, err := json.Marshal(page)
	if err != nil {
		return fmt.Errorf("encode the ledger of orphans: %w", err)
	}
	if found.Data == nil {
		found.Data = map[string]string{}
	}
	found.Data[page.key()] = string(text)
	if missing {
		err = b.Client.Create(ctx, found)
	} else {
		err = b.Client.Update(ctx, found)
	}
	if err != nil {
		return fmt.Errorf("write the ledger of orphans to ConfigMap %s/%s: %w", b.Namespace, Name, err)
	}
	return nil
}

// MostOrphaned reports whether a page of any shard has MostOrphaned set. Unreadable pages are ignored.
func (b Book) MostOrphaned(ctx context.Context, provider, namespace string) (bool, error) {
	found, _, err := b.read(ctx)
	if err != nil {
		return false, err
	}
	for _, text := range found.Data {
		page, err := Decode(text)
		if err == nil && page.MostOrphaned && page.Provider == provider && page.Namespace == namespace {
			return true, nil
		}
	}
	return false, nil
}

// Decode decodes a page.
func Decode(text string) (Page, error) {
	p := Page{}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Page{}, fmt.Errorf("decode the ledger of orphans: %w", err)
	}
	return p, nil
}

// remember copies first observations from the previous page, because processes lose them. While the process does not
// look for orphans, MostOrphaned is copied too.
func (p *Page) remember(before Page) {
	p.MostOrphaned = p.MostOrphaned || p.Stopped != "" && before.MostOrphaned
	p.rememberForceDeleted(before)
	seen := map[string]time.Time{}
	for _, e := range before.Entries {
		seen[e.key()] = e.FirstSeen
	}
	for i, e := range p.Entries {
		if first, known := seen[e.key()]; known && first.Before(e.FirstSeen) {
			p.Entries[i].FirstSeen = first
		}
	}
}

// key identifies an instance by its provider ID, and leftovers by their class.
func (e *Entry) key() string {
	if e.ProviderID == "" {
		return "parts " + e.Source + " " + e.UID
	}
	return e.ProviderID + " " + e.UID
}

func (p Page) equal(other Page) bool {
	p.Written = other.Written
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}

// limit shortens a page to fit into the ConfigMap, and truncates times to the API's precision.
func (p *Page) limit() {
	p.Entries = p.Entries[:min(len(p.Entries), MostEntries)]
	p.Unlisted = p.Unlisted[:min(len(p.Unlisted), MostEntries)]
	p.ForceDeleted = p.ForceDeleted[max(len(p.ForceDeleted)-MostForceDeleted, 0):]
	p.Written = p.Written.UTC().Truncate(time.Second)
	p.Stopped = truncate(p.Stopped)
	for i := range p.Unlisted {
		p.Unlisted[i].Source, p.Unlisted[i].Why = truncate(p.Unlisted[i].Source), truncate(p.Unlisted[i].Why)
	}
	for i := range p.Entries {
		p.Entries[i].limit()
	}
}

func (e *Entry) limit() {
	for _, s := range []*string{&e.ProviderID, &e.Machine, &e.UID, &e.Source} {
		*s = truncate(*s)
	}
	e.Parts = slices.Clone(e.Parts[:min(len(e.Parts), maxParts)])
	for j := range e.Parts {
		e.Parts[j] = truncate(e.Parts[j])
	}
	e.FirstSeen = e.FirstSeen.UTC().Truncate(time.Second)
	if e.Launched != nil {
		launched := e.Launched.UTC().Truncate(time.Second)
		e.Launched = &launched
	}
}

func truncate(s string) string {
	if len(s) > maxStringLength {
		s = s[:maxStringLength]
	}
	return strings.ToValidUTF8(s, "")
}
