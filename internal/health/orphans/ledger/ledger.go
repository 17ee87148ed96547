// Package ledger keeps what the last pass of the orphan collection found where people can read it: only a provider's
// process can list the cloud, and a person has no access to that process.
//
// It is a ConfigMap in the namespace of the leases, with one key for each provider. It is read once a pass and
// written only when it has something else to say, so that a fleet in order costs no write.
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
	// Name is that of the ConfigMap.
	Name = "machinist-orphans"
	// MostEntries bounds what a page describes one by one.
	MostEntries = 100
	// MostForceDeleted bounds what a page names of Machines that were deleted by force.
	MostForceDeleted = 1000
	// longest bounds each word that comes from the cloud.
	longest = 300
	// mostParts bounds what an entry names one by one.
	mostParts = 20
)

// Page is what a provider's last pass found. What does not change from pass to pass does not change it.
type Page struct {
	// Provider whose instances were listed, and the only Namespace of its Machines; empty for all.
	Provider  string `json:"provider"`
	Namespace string `json:"namespace,omitempty"`
	// Shard is the part of the namespaces whose instances were listed, such as 0-of-4; empty for all.
	Shard string `json:"shard,omitempty"`
	// Written is when something was last new.
	Written time.Time `json:"written"`
	// Period is the time between two passes, in seconds.
	Period int64 `json:"periodSeconds"`
	// Stopped says why nothing is looked for, if that is so; nothing else is then known.
	Stopped string `json:"stopped,omitempty"`
	// Unlisted are the classes, or machines without one, whose instances could not be listed, with the reason in a word.
	Unlisted []Unlisted `json:"unlisted,omitempty"`
	// MostOrphaned says that most instances had no Machine when they were found, so that a person must confirm their
	// removal: a second memory of it, beside the condition OrphanRemovalBlocked of the classes.
	MostOrphaned bool `json:"mostOrphaned,omitempty"`
	// Total is how many instances were found that have no Machine, or are one too many for theirs. Entries describe
	// them, at most MostEntries.
	Total   int     `json:"total"`
	Entries []Entry `json:"entries,omitempty"`
	// ForceDeleted are what Machines that were deleted by force may have left at the cloud, until the instances of their
	// Source were listed without it. Their removal was asked for with the deletion. There are at most MostForceDeleted;
	// the oldest are dropped.
	ForceDeleted []Entry `json:"forceDeleted,omitempty"`

	// settled are the UIDs of the Machines in ForceDeleted that left nothing.
	settled map[string]bool
}

// Unlisted is one of what could not be listed.
type Unlisted struct {
	Source string `json:"source"`
	Why    string `json:"why"`
}

// Entry is one instance, or the parts of one machine that belong to no instance.
type Entry struct {
	// ProviderID is empty for parts.
	ProviderID string   `json:"providerID"`
	Parts      []string `json:"parts,omitempty"`
	// Machine is the namespace and name in its tags, UID that Machine's.
	Machine string `json:"machine"`
	UID     string `json:"uid"`
	// Source is the class, or the machine without one, by which it was found, as namespace/name.
	Source string `json:"source"`
	// FirstSeen is when it was found first, Launched when the cloud says that it was made.
	FirstSeen time.Time  `json:"firstSeen"`
	Launched  *time.Time `json:"launched,omitempty"`
	// Outcome is what the pass made of it, by a name of package orphans.
	Outcome string `json:"outcome"`
}

// Book is where the pages of one provider are kept.
type Book struct {
	// Client reads and writes the API server itself.
	Client client.Client
	// Namespace is that of the leases.
	Namespace string
}

// Key is that of a provider's page in the ConfigMap. It can tell a provider for one namespace from one for all, since
// neither name has a dot.
func Key(provider, namespace string) string {
	if namespace == "" {
		return provider
	}
	return provider + "." + namespace
}

// key is that of a page in the ConfigMap: each shard has one.
func (p *Page) key() string {
	if p.Shard == "" {
		return Key(p.Provider, p.Namespace)
	}
	return p.Provider + shardKey + p.Shard
}

// shardKey is in the keys of shards alone: the name of a namespace has no dot.
const shardKey = ".shard."

// outdated returns the keys of pages about the same instances, divided in another way: those who wrote them have ended.
func (p *Page) outdated(data map[string]string) (keys []string) {
	_, count, _ := strings.Cut(p.Shard, "-of-")
	for key := range data {
		of, shard, sharded := strings.Cut(key, shardKey)
		_, counted, _ := strings.Cut(shard, "-of-")
		switch {
		case sharded && of == p.Provider && p.Namespace == "" && counted != count,
			!sharded && key == p.Provider && p.Shard != "":
			keys = append(keys, key)
		}
	}
	return keys
}

// conflicts is how often a page is written anew when that of another provider came in between.
const conflicts = 3

// Keep writes a page, unless the one that is there says the same.
func (b Book) Keep(ctx context.Context, page Page) error {
	page.bound()
	var err error
	for range conflicts {
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
		if page.same(before) && len(outdated) == 0 {
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
		return fmt.Errorf("encode what is known of orphans: %w", err)
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
		return fmt.Errorf("write what is known of orphans to ConfigMap %s/%s: %w", b.Namespace, Name, err)
	}
	return nil
}

// MostOrphaned reports whether a page of a provider for a namespace, of any shard, says that most instances had no
// Machine. Pages that cannot be read say nothing.
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

// Decode reads a page.
func Decode(text string) (Page, error) {
	p := Page{}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Page{}, fmt.Errorf("read what is known of orphans: %w", err)
	}
	return p, nil
}

// remember keeps the times at which instances were first seen, which the process forgets when it ends; and, while
// nothing is looked for, that most had no Machine.
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

// key tells entries apart: an instance by its provider ID, parts by the class that leads to them.
func (e *Entry) key() string {
	if e.ProviderID == "" {
		return "parts " + e.Source + " " + e.UID
	}
	return e.ProviderID + " " + e.UID
}

// same reports whether a page says what another one does, but for when it was written.
func (p Page) same(other Page) bool {
	p.Written = other.Written
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}

// bound makes a page fit into its ConfigMap, and times what the API keeps of them.
func (p *Page) bound() {
	p.Entries = p.Entries[:min(len(p.Entries), MostEntries)]
	p.Unlisted = p.Unlisted[:min(len(p.Unlisted), MostEntries)]
	p.ForceDeleted = p.ForceDeleted[max(len(p.ForceDeleted)-MostForceDeleted, 0):]
	p.Written = p.Written.UTC().Truncate(time.Second)
	p.Stopped = cut(p.Stopped)
	for i := range p.Unlisted {
		p.Unlisted[i].Source, p.Unlisted[i].Why = cut(p.Unlisted[i].Source), cut(p.Unlisted[i].Why)
	}
	for i := range p.Entries {
		p.Entries[i].bound()
	}
}

func (e *Entry) bound() {
	e.ProviderID, e.Machine, e.UID, e.Source = cut(e.ProviderID), cut(e.Machine), cut(e.UID), cut(e.Source)
	e.Parts = slices.Clone(e.Parts[:min(len(e.Parts), mostParts)])
	for j := range e.Parts {
		e.Parts[j] = cut(e.Parts[j])
	}
	e.FirstSeen = e.FirstSeen.UTC().Truncate(time.Second)
	if e.Launched != nil {
		launched := e.Launched.UTC().Truncate(time.Second)
		e.Launched = &launched
	}
}

func cut(s string) string {
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "")
}
