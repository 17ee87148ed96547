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
	// attachmentAge limits the age of a list of VolumeAttachments. A list may be older than the requested time by at
	// most attachmentAge. Even such a list proves that a node has no attachments, because a volume is attached long
	// before its pod starts and ends. With this limit, the API server gets two or three list requests per second,
	// regardless of the number of machines.
	attachmentAge = time.Second

	// attachmentPage is the page size for lists of VolumeAttachments. If all VolumeAttachments of the cluster fit into one
	// page, callers never wait for a list.
	attachmentPage = 500

	// attachmentRest protects the API server from frequent lists of many VolumeAttachments. If a list has several
	// pages, the next list begins only after a pause. The pause is attachmentRest times as long as reading the list
	// took.
	attachmentRest = 5
)

// attachments finds the VolumeAttachments of a node. The API server cannot select VolumeAttachments by node. Therefore,
// all machines that wait for volumes share one list.
type attachments struct {
	target client.Reader
	clock  clock.PassiveClock

	mu           sync.Mutex
	byNode       map[string][]Attachment
	taken        time.Time // when the list began
	nextListTime time.Time // when the next list may begin
	many         bool
	reading      bool
}

// attachedTo returns the attachments of a node as of the given time or a later time. An empty result may be older than
// the given time by at most attachmentAge. If it is too early for another list, attachedTo returns how long the caller
// must wait.
func (a *attachments) attachedTo(ctx context.Context, node string,
	since time.Time) (list []Attachment, wait time.Duration, err error) {
	a.mu.Lock()
	now := a.clock.Now()
	if list, ok := a.cached(node, since); ok {
		a.mu.Unlock()
		return list, 0, nil
	}
	if rest := a.nextListTime.Sub(now); a.many && (rest > 0 || a.reading) {
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
		a.nextListTime = ended.Add(attachmentRest * ended.Sub(now))
	}
	return byNode[node], 0, nil
}

// cached returns the attachments of a node from the last list that was read. If this list is older than the given time,
// ok is false.
func (a *attachments) cached(node string, since time.Time) (list []Attachment, ok bool) {
	if a.taken.IsZero() {
		return nil, false
	}
	list = a.byNode[node]
	age := since.Sub(a.taken)
	return list, age <= 0 || len(list) == 0 && (age <= attachmentAge/2 || age <= attachmentAge && a.reading)
}

func (a *attachments) latest(node string) []Attachment {
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
