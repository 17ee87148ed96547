// Package ledger stores what the last pass of the orphan collection found, so that users can read it. Only the
// provider's process can list the cloud, and users have no access to that process.
//
// The ledger is a ConfigMap in the namespace of the leases, with one key for each provider. A pass reads the ConfigMap
// once, and writes it only if the result has changed.
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

// Page is the result of a provider's last pass. The content of a Page changes only if the result changes.
type Page struct {
	// Provider is the provider whose instances were listed. Namespace is the only namespace of its Machines, or empty
	// for all.
	Provider  string `json:"provider"`
	Namespace string `json:"namespace,omitempty"`
	// Shard is the part of the namespaces that was listed, such as 0-of-4, or empty for all.
	Shard string `json:"shard,omitempty"`
	// WriteTime is the time of the last change of the page.
	WriteTime time.Time `json:"written"`
	// Period is the time between two passes, in seconds.
	Period int64 `json:"periodSeconds"`
	// Stopped explains why the process does not look for orphans. If Stopped is not empty, the page contains no current
	// results.
	Stopped string `json:"stopped,omitempty"`
	// Unlisted contains the classes whose instances could not be listed. If the instances of a Machine without a class
	// could not be listed, Unlisted contains the Machine.
	Unlisted []FailedList `json:"unlisted,omitempty"`
	// MostOrphaned means that most instances had no Machine, so that an administrator must confirm their removal. The
	// condition OrphanRemovalBlocked of the classes says the same, but can be lost if the status is cleared.
	MostOrphaned bool `json:"mostOrphaned,omitempty"`
	// Total is the number of orphans and duplicates. Entries describes at most MostEntries orphans and duplicates.
	Total   int     `json:"total"`
	Entries []Entry `json:"entries,omitempty"`
	// ForceDeleted contains the Machines that were force-deleted although their instance or other resources may still
	// exist in the cloud. The entry of a Machine is removed when a list with the credentials of its Source contains no
	// resources of the Machine. Beyond MostForceDeleted, the oldest entries are dropped.
	ForceDeleted []Entry `json:"forceDeleted,omitempty"`

	// finishedMachines contains the UIDs of force-deleted Machines that have no resources in the cloud anymore.
	finishedMachines map[string]bool
}

// FailedList describes a failed list of instances.
type FailedList struct {
	// Source is the namespace/name of the class, or of the Machine without a class, whose instances could not be
	// listed.
	Source string `json:"source"`
	// Why is the cause, as a reason of a condition or as an error code of the driver.
	Why string `json:"why"`
}

// Entry is one instance, or the leftovers of one machine.
type Entry struct {
	// ProviderID is empty for leftovers.
	ProviderID string   `json:"providerID"`
	Parts      []string `json:"parts,omitempty"`
	// Machine and UID are the namespace/name and the UID of the Machine. Both values are from the tags of the instance.
	Machine string `json:"machine"`
	UID     string `json:"uid"`
	// Source is the namespace/name of the class whose credentials found the instance. If a Machine without a class has
	// these credentials, Source is the namespace/name of this Machine.
	Source string `json:"source"`
	// FirstSeen is the time at which the entry was first found. Launched is the creation time that the cloud reports.
	FirstSeen time.Time  `json:"firstSeen"`
	Launched  *time.Time `json:"launched,omitempty"`
	// Outcome is the decision of the pass, such as "Delete" or "TooYoung": a value of the type orphans.Outcome.
	Outcome string `json:"outcome"`
}

// Store reads and writes the ledger.
type Store struct {
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

// key contains the shard, because each shard has its own page.
func (p *Page) key() string {
	if p.Shard == "" {
		return Key(p.Provider, p.Namespace)
	}
	return p.Provider + shardInfix + p.Shard
}

// shardInfix marks the keys of shards. Namespace names have no dots.
const shardInfix = ".shard."

// outdatedKeys returns the keys of pages that describe the same instances but were written with another number of
// shards. The processes that wrote these pages have ended.
func (p *Page) outdatedKeys(data map[string]string) (keys []string) {
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

// Keep stores a page. If the stored page has the same content, Keep writes nothing.
func (b Store) Keep(ctx context.Context, page Page) error {
	page.limit()
	var err error
	for range maxAttempts {
		if err = b.keep(ctx, page); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return err
}

func (b Store) keep(ctx context.Context, page Page) error {
	key := page.key()
	found, missing, err := b.read(ctx)
	if err != nil {
		return err
	}
	outdated := page.outdatedKeys(found.Data)
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

func (b Store) write(ctx context.Context, found *corev1.ConfigMap, missing bool, page Page) error {
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
func (b Store) MostOrphaned(ctx context.Context, provider, namespace string) (bool, error) {
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

// remember copies the time FirstSeen of each entry from the previous page, because a process forgets these times when
// it restarts. While the process does not look for orphans, remember also copies MostOrphaned from the previous page.
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

// key identifies the entry of an instance by its provider ID and the UID of its Machine. Leftovers have no provider ID,
// so their class and the UID identify them.
func (e *Entry) key() string {
	if e.ProviderID == "" {
		return "parts " + e.Source + " " + e.UID
	}
	return e.ProviderID + " " + e.UID
}

func (p Page) equal(other Page) bool {
	p.WriteTime = other.WriteTime
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}

// limit shortens a page to fit into the ConfigMap, and truncates times to the API's precision.
func (p *Page) limit() {
	p.Entries = p.Entries[:min(len(p.Entries), MostEntries)]
	p.Unlisted = p.Unlisted[:min(len(p.Unlisted), MostEntries)]
	p.ForceDeleted = p.ForceDeleted[max(len(p.ForceDeleted)-MostForceDeleted, 0):]
	p.WriteTime = p.WriteTime.UTC().Truncate(time.Second)
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
