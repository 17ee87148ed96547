package resolve

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared returns a reader through which those who ask for the same Secret at about the same time share the answers of
// secrets: many machines that are made at once refer to a few Secrets. Each gets what was read after it asked, so
// nothing is older than what it would have read by itself, and an answer is kept only until those who wait for it
// have it.
func Shared(secrets client.Reader) client.Reader {
	return &shared{Reader: secrets, reads: map[client.ObjectKey]*queue{}}
}

type shared struct {
	client.Reader

	mu    sync.Mutex
	reads map[client.ObjectKey]*queue // of Secrets that are being read
}

// queue is a read that has begun, and the one after it for all who have asked since.
type queue struct{ begun, next *read }

// read is one request. secret and err must be read after done is closed.
type read struct {
	done   chan struct{}
	secret *corev1.Secret
	err    error
	// given says that whoever was to make it gave up.
	given bool
}

// Get reads a Secret together with others; what is no Secret it just reads.
func (s *shared) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(options) > 0 {
		return s.Reader.Get(ctx, key, object, options...)
	}
	r, before, ours := s.join(key)
	if ours {
		s.make(ctx, key, r, before)
	} else {
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch {
	case r.given && !ours:
		// It was the end of another's patience, not of ours.
		return s.Reader.Get(ctx, key, secret)
	case r.err == nil:
		r.secret.DeepCopyInto(secret)
	}
	return r.err
}

// join returns the first read that begins from now on, the one that must have ended before (nil if there is none), and
// whether the caller is the one to make it.
func (s *shared) join(key client.ObjectKey) (r, before *read, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.reads[key]
	switch {
	case q == nil:
		r = &read{done: make(chan struct{})}
		s.reads[key] = &queue{begun: r}
		return r, nil, true
	case q.next == nil:
		q.next = &read{done: make(chan struct{})}
		return q.next, q.begun, true
	}
	return q.next, nil, false
}

// make makes the read, once the one before it has ended.
func (s *shared) make(ctx context.Context, key client.ObjectKey, r, before *read) {
	if before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
		}
	}
	if before != nil {
		s.mu.Lock()
		s.reads[key].begun, s.reads[key].next = r, nil // From now on who asks needs a later one.
		s.mu.Unlock()
	}
	r.secret = &corev1.Secret{}
	if r.err = context.Cause(ctx); r.err == nil {
		r.err = s.Reader.Get(ctx, key, r.secret)
	}
	r.given = r.err != nil && ctx.Err() != nil
	s.mu.Lock()
	if q := s.reads[key]; q != nil && q.begun == r && q.next == nil {
		delete(s.reads, key)
	}
	s.mu.Unlock()
	close(r.done)
}
