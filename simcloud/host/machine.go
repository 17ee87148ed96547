package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
)

type machine struct {
	spec     Spec
	reporter Reporter
	clock    clock.Clock
	roots    *roots

	boot *bootstrap
	disk Disk
	conn *connection // set when the node has its certificate
	// registrationTime is the time of the last registration of the Node or restart of the kubelet.
	registrationTime time.Time
	// registrationDone is true after the kubelet has registered its Node. From then on, the kubelet updates the Node's
	// status. The Node cannot be Ready earlier.
	registrationDone bool
	// nodeCreated is true if the last registration created the Node.
	nodeCreated bool
	// rebooted is true if the Node existed before this boot.
	rebooted bool
	events   chan *corev1.Event
	serial   atomic.Int64 // number of events so far

	mu      sync.Mutex
	images  map[string]bool
	status  simcloud.HostStatus
	nodeUID types.UID
}

func (m *machine) run(ctx context.Context) {
	boot, notes, err := parseBootstrap(m.spec)
	for _, note := range notes {
		m.printf("cloud-init: %s", note)
	}
	if err != nil {
		m.printf("cloud-init: no cluster to join: %v", err)
		m.report(simcloud.HostIdle, fmt.Sprintf("no cluster to join: %v", err))
		return
	}
	m.boot, m.spec.UserData = boot, nil // The user data may be long and is no longer needed.
	m.printf("kubelet: version %s, node %s, API server %s", boot.version, m.spec.Hostname, boot.server)

	if !m.retry(ctx, "get the node certificate", certificateBackoff(), m.authenticate) {
		return
	}
	defer m.conn.close()
	defer context.AfterFunc(ctx, m.conn.close)()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { m.sendEvents(ctx) })
	m.nodeEvent(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	if !m.retry(ctx, "register the node", registrationBackoff(), m.register) {
		return
	}
	m.registrationEvents()
	group.Go(func() { m.heartbeat(ctx) })
	group.Go(func() { m.simulatePods(ctx) })
	if boot.serverTLS {
		group.Go(func() { m.keepServingCertificate(ctx) })
	}
}

// retry calls attempt until attempt succeeds, and prints each error to the console. It returns false if the machine is
// switched off first.
func (m *machine) retry(ctx context.Context, what string, backoff wait.Backoff,
	attempt func(context.Context) error) bool {
	for ctx.Err() == nil {
		err := attempt(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		delay := backoff.Step()
		m.printf("kubelet: %s: %s; next attempt in %s", what, explain(err), delay.Round(time.Millisecond))
		m.report(simcloud.HostJoining, what+": "+explain(err))
		m.pause(ctx, delay)
	}
	return false
}

// newBackoff returns delays from half a second to half a minute. The jitter spreads the attempts of machines that lost
// the same server.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 1 << 20, Cap: 30 * time.Second}
}

// certificateBackoff returns the delays between a kubelet's certificate requests: 2, 4, 8 and 16 seconds, then always
// 32 seconds.
func certificateBackoff() wait.Backoff {
	return wait.Backoff{Duration: 2 * time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 20, Cap: 32 * time.Second}
}

// registrationBackoff returns the delays between a kubelet's attempts to register its Node.
func registrationBackoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 1 << 20, Cap: 7 * time.Second}
}

// pause ends early if the machine is switched off.
func (m *machine) pause(ctx context.Context, d time.Duration) {
	timer := m.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

func (m *machine) printf(format string, args ...any) {
	m.reporter.Print(fmt.Sprintf(format, args...))
}

func (m *machine) report(phase simcloud.HostPhase, message string) {
	status := simcloud.HostStatus{Phase: phase, Message: message}
	m.mu.Lock()
	changes := status != m.status
	m.status = status
	m.mu.Unlock()
	if changes {
		m.reporter.Report(status)
	}
}

// explain formats an error with the HTTP status code, because users search for it.
func explain(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code != 0 {
		s := status.Status()
		return fmt.Sprintf("HTTP %d %s: %s", s.Code, http.StatusText(int(s.Code)), s.Message)
	}
	return err.Error()
}
