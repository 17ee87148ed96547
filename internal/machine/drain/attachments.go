package drain

import (
	"context"
	"fmt"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// attachmentPage is how many VolumeAttachments are read at once. A cluster with no more is read whenever asked.
	attachmentPage = 500

	// attachmentRest is how many times the time that reading them took passes before many VolumeAttachments are read
	// again.
	attachmentRest = 5
)

// attachments finds the VolumeAttachments of a node. The API server cannot select them by node, so all are listed, on
// behalf of all machines that wait, and only a name or two of each is kept until the next time.
type attachments struct {
	target client.Reader
	clock  clock.PassiveClock

	mu      sync.Mutex
	byNode  map[string][]Attachment
	taken   time.Time // before the list was asked for
	next    time.Time // when the next list may be asked for
	many    bool
	reading *reading // under way, if any
}

// reading is a list that is being read. Once done is closed, err says whether that failed.
type reading struct {
	done chan struct{}
	err  error
}

// on returns the attachments to a node as they were at the given time or later. If they cannot be told now without
// asking too often, it returns when to ask again instead.
func (a *attachments) on(ctx context.Context, node string, since time.Time) (list []Attachment, wait time.Duration, err error) {
	for {
		a.mu.Lock()
		now := a.clock.Now()
		under := a.reading
		switch rest := a.next.Sub(now); {
		case !a.taken.IsZero() && !a.taken.Before(since):
			list = a.byNode[node]
			a.mu.Unlock()
			return list, 0, nil
		case a.many && (rest > 0 || under != nil):
			a.mu.Unlock()
			return nil, max(rest, 100*time.Millisecond), nil
		case under == nil:
			a.reading = &reading{done: make(chan struct{})}
			a.mu.Unlock()
			byNode, err := a.readSince(ctx, now)
			return byNode[node], 0, err
		}
		a.mu.Unlock()
		// It may be too old. Then one of those that wait reads the next one, for all of them.
		select {
		case <-under.done:
			if under.err != nil {
				return nil, 0, under.err
			}
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// readSince carries out a.reading, which began at the given time.
func (a *attachments) readSince(ctx context.Context, began time.Time) (map[string][]Attachment, error) {
	byNode, many, err := a.read(ctx)
	if err != nil {
		err = fmt.Errorf("list VolumeAttachments: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ended := a.clock.Now(); err == nil {
		a.byNode, a.taken, a.many = byNode, began, many
		a.next = ended.Add(attachmentRest * ended.Sub(began))
	}
	a.reading.err = err
	close(a.reading.done)
	a.reading = nil
	return byNode, err
}

// last returns the attachments to a node as they were last read, however long ago.
func (a *attachments) last(node string) []Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byNode[node]
}

func (a *attachments) read(ctx context.Context) (byNode map[string][]Attachment, many bool, err error) {
	byNode = map[string][]Attachment{}
	for page := ""; ; many = true {
		var list storagev1.VolumeAttachmentList
		if err := a.target.List(ctx, &list, client.Limit(attachmentPage), client.Continue(page)); err != nil {
			return nil, false, err
		}
		for i := range list.Items {
			va := &list.Items[i]
			byNode[va.Spec.NodeName] = append(byNode[va.Spec.NodeName], attachmentOf(va))
		}
		if page = list.Continue; page == "" {
			return byNode, many, nil
		}
	}
}
