package resolve

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewSharedReader returns a reader in which concurrent callers share the reads of a Secret, because many new machines
// use the same few Secrets. Each caller gets the result of a read that began after its call. Results are not cached.
func NewSharedReader(secrets client.Reader) client.Reader {
	return &shared{Reader: secrets, reads: map[client.ObjectKey]*queue{}}
}

type shared struct {
	client.Reader

	mu    sync.Mutex
	reads map[client.ObjectKey]*queue // of Secrets that are being read
}

// A queue contains the current read of a Secret and the next read. Callers that arrive during the current read share
// the next read.
type queue struct{ begun, next *sharedRead }

// sharedRead is one GET of a Secret, with its result. secret and err are valid after done is closed.
type sharedRead struct {
	done   chan struct{}
	secret *corev1.Secret
	err    error
	// abandoned means that the context of the caller that executes the read has ended.
	abandoned bool
}

// Get reads an object. Concurrent callers share one read of a Secret. All other objects are read directly.
func (s *shared) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(options) > 0 {
		return s.Reader.Get(ctx, key, object, options...)
	}
	r, before, first := s.join(key)
	if first {
		s.run(ctx, key, r, before)
	} else {
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch {
	case r.abandoned && !first:
		// Only the executing caller's context has ended.
		return s.Reader.Get(ctx, key, secret)
	case r.err == nil:
		r.secret.DeepCopyInto(secret)
	}
	return r.err
}

// join returns a read of the Secret that has not begun yet. If first is true, the caller must wait for the end of the
// previous read and then execute the returned read. If there is no previous read, the caller must execute the returned
// read at once.
func (s *shared) join(key client.ObjectKey) (r, previous *sharedRead, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.reads[key]
	switch {
	case q == nil:
		r = &sharedRead{done: make(chan struct{})}
		s.reads[key] = &queue{begun: r}
		return r, nil, true
	case q.next == nil:
		q.next = &sharedRead{done: make(chan struct{})}
		return q.next, q.begun, true
	}
	return q.next, nil, false
}

func (s *shared) run(ctx context.Context, key client.ObjectKey, r, before *sharedRead) {
	if before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
		}
	}
	if before != nil {
		s.mu.Lock()
		s.reads[key].begun, s.reads[key].next = r, nil // Later callers need another read.
		s.mu.Unlock()
	}
	r.secret = &corev1.Secret{}
	if r.err = context.Cause(ctx); r.err == nil {
		r.err = s.Reader.Get(ctx, key, r.secret)
	}
	r.abandoned = r.err != nil && ctx.Err() != nil
	s.mu.Lock()
	if q := s.reads[key]; q != nil && q.begun == r && q.next == nil {
		delete(s.reads, key)
	}
	s.mu.Unlock()
	close(r.done)
}
