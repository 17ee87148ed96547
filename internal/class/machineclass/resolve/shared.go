package resolve

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared returns a reader in which concurrent callers share the reads of a Secret. This saves requests, because many
// machines that are created at the same time refer to only a few Secrets. Each caller gets the result of a read
// that began after its call, so the result is at least as new as the result of a separate read. The reader drops a
// result when all waiting callers have received it.
func Shared(secrets client.Reader) client.Reader {
	return &shared{Reader: secrets, reads: map[client.ObjectKey]*queue{}}
}

type shared struct {
	client.Reader

	mu    sync.Mutex
	reads map[client.ObjectKey]*queue // of Secrets that are being read
}

// queue contains the read that is in progress and the read that will follow. All callers that arrive while a read
// is in progress share the following read.
type queue struct{ begun, next *read }

// read is one read of a Secret. secret and err must not be accessed before done is closed.
type read struct {
	done   chan struct{}
	secret *corev1.Secret
	err    error
	// abandoned means that the read failed because the context of the caller that executed it ended.
	abandoned bool
}

// Get shares the reads of Secrets. It reads all other objects directly.
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
		// The context of the caller that executed the read has ended, but the context of this caller has not.
		return s.Reader.Get(ctx, key, secret)
	case r.err == nil:
		r.secret.DeepCopyInto(secret)
	}
	return r.err
}

// join returns the read whose result the caller must use. This read begins after join was called. If the result
// first is true, the caller must execute the read itself. In this case, before is the read that must end first, or
// nil.
func (s *shared) join(key client.ObjectKey) (r, before *read, first bool) {
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

// run reads the Secret as soon as the previous read has ended.
func (s *shared) run(ctx context.Context, key client.ObjectKey, r, before *read) {
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
