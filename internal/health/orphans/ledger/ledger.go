// Package ledger stores what the last pass of the orphan collection found, so that users can read it. Only the
// provider's process can list the cloud, and users have no access to that process.
//
// The ledger is a ConfigMap in the namespace of the leases, with one key for each provider. A pass reads it once, and
// writes it only if the content changed.
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
	// maxStringLength is the maximum length of each string from the cloud, in bytes.
	maxStringLength = 300
	// maxParts is the maximum number of parts of an entry.
	maxParts = 20
)

// Page is the result of a provider's last pass. It contains only data that stays the same from pass to pass as long as
// nothing happens.
type Page struct {
	// Provider is the provider whose instances were listed. Namespace is the only namespace of its Machines, or empty for
	// all namespaces.
	Provider  string `json:"provider"`
	Namespace string `json:"namespace,omitempty"`
	// Shard is the part of the namespaces whose instances were listed, such as 0-of-4. It is empty for all.
	Shard string `json:"shard,omitempty"`
	// Written is the time at which the page last changed.
	Written time.Time `json:"written"`
	// Period is the time between two passes, in seconds.
	Period int64 `json:"periodSeconds"`
	// Stopped explains why the process does not look for orphans. If it is set, the other results are unknown.
	Stopped string `json:"stopped,omitempty"`
	// Unlisted are the classes, and machines without a class, whose instances could not be listed.
	Unlisted []Unlisted `json:"unlisted,omitempty"`
	// MostOrphaned means that most instances had no Machine when they were found, so that an administrator must confirm
	// their removal. It is a second record of the condition OrphanRemovalBlocked of the classes.
	MostOrphaned bool `json:"mostOrphaned,omitempty"`
	// Total is the number of orphans and duplicates that were found. Entries describe them, at most MostEntries.
	Total   int     `json:"total"`
	Entries []Entry `json:"entries,omitempty"`
	// ForceDeleted are force-deleted Machines that may have left something in the cloud. An entry stays until the
	// instances of its Source were listed and nothing of the Machine was found. With the deletion, the user also asked for
	// the removal of everything that is left. If there are more than MostForceDeleted entries, the oldest ones are
	// dropped.
	ForceDeleted []Entry `json:"forceDeleted,omitempty"`

	// finished contains the UIDs of the Machines in ForceDeleted that left nothing in the cloud.
	finished map[string]bool
}

// Unlisted is a class, or a machine without a class, whose instances could not be listed. Why is the reason or code.
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
	// Source is the namespace/name of the class with which the entry was found, or of the machine if it has no class.
	Source string `json:"source"`
	// FirstSeen is the time at which the entry was first found. Launched is the time of the creation, as the cloud reports
	// it.
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

// Key returns the key of a provider's page in the ConfigMap. Names of providers and namespaces contain no dots, so the
// key for one namespace never equals the key for all namespaces.
func Key(provider, namespace string) string {
	if namespace == "" {
		return provider
	}
	return provider + "." + namespace
}

// key returns the key of the page in the ConfigMap. Each shard has its own page.
func (p *Page) key() string {
	if p.Shard == "" {
		return Key(p.Provider, p.Namespace)
	}
	return p.Provider + shardInfix + p.Shard
}

// shardInfix occurs only in the keys of shards, because the name of a namespace has no dot.
const shardInfix = ".shard."

// outdated returns the keys of pages that describe the same instances but were written with a different number of
// shards. The processes that wrote them have ended.
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

// maxAttempts limits how many times a page is written if another provider writes its page at the same time.
const maxAttempts = 3

// Keep writes a page, unless the stored page has the same content.
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

// write stores a page in the ConfigMap.
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

// MostOrphaned reports whether MostOrphaned is set on any page of a provider and a namespace, from the pages of all
// shards. It ignores pages that cannot be read.
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

// remember copies the times at which instances were first seen from the previous page, because a process loses them
// when it ends. If the process does not look for orphans, remember also copies MostOrphaned.
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

// key identifies an entry: an instance by its provider ID, leftovers by the class with which they were found.
func (e *Entry) key() string {
	if e.ProviderID == "" {
		return "parts " + e.Source + " " + e.UID
	}
	return e.ProviderID + " " + e.UID
}

// equal reports whether all fields of two pages except Written are equal.
func (p Page) equal(other Page) bool {
	p.Written = other.Written
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}

// limit shortens a page so that it fits into the ConfigMap. It also truncates times to the precision of the API.
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
