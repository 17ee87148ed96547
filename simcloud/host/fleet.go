package host

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Fleet contains all machines of a process.
type Fleet struct {
	clock clock.Clock
	roots roots

	mu      sync.Mutex
	closed  bool
	running map[string]context.CancelFunc
	group   sync.WaitGroup
}

// NewFleet returns an empty fleet. The machines and the cluster must use the same clock, so only tests can use a fake
// clock.
func NewFleet(c clock.Clock) *Fleet {
	return &Fleet{clock: c, running: map[string]context.CancelFunc{},
		roots: roots{pools: map[[sha256.Size]byte]weak.Pointer[x509.CertPool]{}}}
}

// Start switches a machine on without waiting.
func (f *Fleet) Start(spec Spec, reporter Reporter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if stop := f.running[spec.ID]; stop != nil {
		stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	f.running[spec.ID] = stop
	m := &machine{spec: spec, reporter: reporter, clock: f.clock, roots: &f.roots, disk: spec.Disk,
		events: make(chan *corev1.Event, maxEvents)}
	f.group.Go(func() {
		defer stop()
		m.run(ctx)
	})
}

// Stop switches a machine off without waiting.
func (f *Fleet) Stop(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stop := f.running[id]; stop != nil {
		stop()
		delete(f.running, id)
	}
}

// Close switches all machines off and waits until they are off.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	for _, stop := range f.running {
		stop()
	}
	f.mu.Unlock()
	f.group.Wait()
}

// roots caches the certificate authorities of clusters. All machines of a cluster share an entry, which is dropped
// after its last use.
type roots struct {
	mu    sync.Mutex
	pools map[[sha256.Size]byte]weak.Pointer[x509.CertPool]
}

func (r *roots) pool(pem []byte) *x509.CertPool {
	key := sha256.Sum256(pem)
	r.mu.Lock()
	defer r.mu.Unlock()
	if pool := r.pools[key].Value(); pool != nil {
		return pool
	}
	for k, p := range r.pools {
		if p.Value() == nil {
			delete(r.pools, k)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem) // readCluster has checked the certificate.
	r.pools[key] = weak.Make(pool)
	return pool
}
