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
	// attachmentAge is the maximum age of a list that shows no attachments of a node, counted back from the requested
	// time. This is safe because a volume is attached well before the pod that uses it runs, let alone ends. A caller that
	// finds a list of more than half this age reads another one, so there are two or three lists per second for any number
	// of machines.
	attachmentAge = time.Second

	// attachmentPage is how many VolumeAttachments are read at once. In a cluster with fewer of them, callers never have
	// to wait for a list.
	attachmentPage = 500

	// attachmentRest limits how often many VolumeAttachments are read: the pause after reading them is this many times as
	// long as the reading took.
	attachmentRest = 5
)

// attachments finds the VolumeAttachments of a node. The API server cannot select them by node, so one list serves all
// machines that wait. Only the names of each attachment are kept until the next list.
type attachments struct {
	target client.Reader
	clock  clock.PassiveClock

	mu      sync.Mutex
	byNode  map[string][]Attachment
	taken   time.Time // when the list began
	next    time.Time // when the next list may begin
	many    bool
	reading bool
}

// on returns the attachments to a node at the given time or later. An empty result may be up to attachmentAge older. If
// another list would be too early, on returns how long to wait instead.
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

// known returns the attachments to a node from the last list. ok is false if that list is too old for the given time,
// see on.
func (a *attachments) known(node string, since time.Time) (list []Attachment, ok bool) {
	if a.taken.IsZero() {
		return nil, false
	}
	list = a.byNode[node]
	age := since.Sub(a.taken)
	return list, age <= 0 || len(list) == 0 && (age <= attachmentAge/2 || age <= attachmentAge && a.reading)
}

// last returns the attachments to a node from the last list, regardless of its age.
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
