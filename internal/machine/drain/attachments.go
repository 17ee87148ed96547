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
	// attachmentAge is how old a list may be at most that shows a node without attachments, counted from the time that is
	// asked for: a volume is attached well before the pod that uses it runs, let alone ends. Who finds the last list half
	// as old begins another, so that there are two or three lists in a second however many machines go.
	attachmentAge = time.Second

	// attachmentPage is how many VolumeAttachments are read at once. In a cluster with no more nobody has to wait for a
	// list.
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
	reading bool
}

// on returns the attachments to a node as they were at the given time or later; that there are none may be up to
// attachmentAge older. If they cannot be reported now without asking too often, it returns when to ask again instead.
func (a *attachments) on(ctx context.Context, node string, since time.Time) (list []Attachment, wait time.Duration,
	err error) {
	a.mu.Lock()
	now := a.clock.Now()
	if list, ok := a.known(node, since); ok {
		a.mu.Unlock()
		return list, 0, nil
	}
	if rest := a.next.Sub(now); a.many && (rest > 0 || a.reading) {
		a.mu.Unlock()
		return nil, max(rest, 100*time.Millisecond), nil
	}
	a.reading = true
	a.mu.Unlock()

	byNode, many, err := a.read(ctx)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.reading = false
	if err != nil {
		return nil, 0, fmt.Errorf("list VolumeAttachments: %w", err)
	}
	if ended := a.clock.Now(); a.taken.Before(now) {
		a.byNode, a.taken, a.many = byNode, now, many
		a.next = ended.Add(attachmentRest * ended.Sub(now))
	}
	return byNode[node], 0, nil
}

// known returns the attachments to a node by the last list, if that is new enough for the given time, see on.
func (a *attachments) known(node string, since time.Time) (list []Attachment, ok bool) {
	if a.taken.IsZero() {
		return nil, false
	}
	list = a.byNode[node]
	age := since.Sub(a.taken)
	return list, age <= 0 || len(list) == 0 && (age <= attachmentAge/2 || age <= attachmentAge && a.reading)
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
