package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

type trial struct {
	report
	*suite
	name   string
	driver *checkedDriver
	// userDataSecret is a text in all user data. No answer of the driver may contain this text.
	userDataSecret string
	subjects       []*subject
	handles        handles
	// The functions in cleanups end injected faults, and remove instances that were launched without the driver.
	cleanups []func()
	// After the case, hasEnded is true, and Errorf ignores failures. A call of the driver may still be running then.
	hasEnded atomic.Bool
}

// Errorf reports a failure. Errorf removes leaked secrets from the text.
func (t *trial) Errorf(format string, args ...any) {
	t.Helper()
	if t.hasEnded.Load() {
		return
	}
	t.report.Errorf("%s", t.redact(fmt.Sprintf(format, args...)))
}

func (t *trial) Logf(format string, args ...any) {
	t.Helper()
	t.report.Logf("%s", t.redact(fmt.Sprintf(format, args...)))
}

func (t *trial) fatalf(format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	t.FailNow()
}

func (t *trial) must(err error, attempted string, args ...any) {
	t.Helper()
	if err != nil {
		t.fatalf("%s: %v", fmt.Sprintf(attempted, args...), err)
	}
}

func (t *trial) restart() *checkedDriver {
	t.Helper()
	d, err := t.New()
	t.must(err, "Config.New")
	return &checkedDriver{driver: d, t: t, timeout: provider.CallTimeout(d)}
}

// handles contains the CreateHandle of each instance, by provider ID, as Machinist records it in the status of a
// Machine.
type handles struct {
	mu     sync.Mutex
	latest map[string]string
	// calls counts the calls of each operation that had a handle to pass.
	calls map[string]int
}

// record updates the handle of an instance that the driver has returned.
func (h *handles) record(in *provider.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest == nil {
		h.latest, h.calls = map[string]string{}, map[string]int{}
	}
	switch {
	case in.State != provider.StatePending:
		delete(h.latest, in.ProviderID)
	case in.CreateHandle != "":
		h.latest[in.ProviderID] = in.CreateHandle
	}
}

// next returns the handle for the next call of an operation on an instance. Machinist may have lost the handle, so
// every second call gets none.
func (h *handles) next(operation, providerID string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	handle := h.latest[providerID]
	if handle == "" {
		return ""
	}
	if h.calls[operation]++; h.calls[operation]%2 == 0 {
		return ""
	}
	return handle
}

// subject is a machine for which a case creates an instance.
type subject struct {
	provider.Machine
	cluster string
	// providerID and scope identify its instance. Both fields are empty until the test knows the instance.
	providerID, scope string
}

func (t *trial) subject() *subject { return t.subjectOf(t.ClusterID) }

func (t *trial) subjectOf(cluster string) *subject {
	s := &subject{cluster: cluster, Machine: provider.Machine{Namespace: "default", Name: "conformance-" +
		random(4), UID: newUID()}}
	t.subjects = append(t.subjects, s)
	return s
}

func (t *trial) otherCluster() string { return t.ClusterID + "-other" }

func newUID() types.UID {
	hex := random(16)
	return types.UID(fmt.Sprintf("%s-%s-4%s-8%s-%s", hex[:8], hex[8:12], hex[13:16], hex[17:20], hex[20:]))
}

func (t *trial) createRequest(s *subject) provider.CreateRequest {
	return provider.CreateRequest{
		Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, Token: string(s.UID) + "-1",
		Tags:     s.tags(),
		UserData: t.userData(""),
		Version:  t.Version,
	}
}

func (s *subject) tags() map[string]string {
	return map[string]string{
		provider.TagCluster:    s.cluster,
		provider.TagMachineUID: string(s.UID),
		provider.TagMachine:    s.Namespace + "/" + s.Name,
	}
}

func (t *trial) userData(more string) provider.Secret {
	return provider.NewSecret([]byte("#cloud-config\n# " + t.userDataSecret + more + "\n"))
}

func (t *trial) byID(s *subject) provider.GetRequest {
	req := t.byTags(s)
	req.ProviderID, req.Scope = s.providerID, s.scope
	return req
}

func (t *trial) byTags(s *subject) provider.GetRequest {
	return provider.GetRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster}
}

func (t *trial) deleteByID(s *subject) provider.DeleteRequest {
	req := t.deleteByTags(s)
	req.ProviderID, req.Scope = s.providerID, s.scope
	return req
}

func (t *trial) deleteByTags(s *subject) provider.DeleteRequest {
	return provider.DeleteRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster}
}

func (t *trial) updateRequest(s *subject) provider.UpdateRequest {
	return provider.UpdateRequest{
		Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID, Scope: s.scope,
		Version: t.Version,
	}
}

func (t *trial) create(s *subject) *provider.Instance {
	t.Helper()
	in, err := t.driver.Create(t.Context(), t.createRequest(s))
	t.must(err, "Create")
	s.providerID, s.scope = in.ProviderID, in.Scope
	return in
}

// launch creates the subject's instance and waits until Get and List find it.
func (t *trial) launch(s *subject) *provider.Instance {
	t.Helper()
	in := t.create(s)
	t.awaitVisible(s)
	return in
}

func (t *trial) awaitVisible(s *subject) {
	t.Helper()
	t.await("Get by provider ID, Get by tags and List find "+s.providerID, func() (bool, string) {
		for how, req := range map[string]provider.GetRequest{"provider ID": t.byID(s), "tags": t.byTags(s)} {
			in, err := t.driver.Get(t.Context(), req)
			if provider.IsNotFound(err) {
				return false, "Get by " + how + " does not"
			}
			t.must(err, "Get by %s", how)
			if in.ProviderID != s.providerID {
				t.fatalf("Get by %s returns %q, want %q, which Create returned", how, in.ProviderID, s.providerID)
			}
		}
		return len(t.listed(s)) > 0, "List does not"
	})
}

func (t *trial) listed(s *subject) []provider.Instance {
	t.Helper()
	all, _ := t.list(s.cluster)
	return slices.DeleteFunc(all, func(in provider.Instance) bool { return in.MachineUID != s.UID })
}

// maxPages is far more pages than the suite's instances can fill.
const maxPages = 10000

func (t *trial) list(cluster string) (all []provider.Instance, pages int) {
	t.Helper()
	found, err := t.pages(cluster)
	t.must(err, "List, page %d", len(found)+1)
	for _, page := range found {
		all = append(all, page.Instances...)
	}
	return all, len(found)
}

func (t *trial) leftovers(cluster string) (all []provider.Leftover) {
	t.Helper()
	found, err := t.pages(cluster)
	t.must(err, "List, page %d", len(found)+1)
	for _, page := range found {
		all = append(all, page.Leftovers...)
	}
	return all
}

func (t *trial) pages(cluster string) (all []provider.ListPage, err error) {
	t.Helper()
	req := provider.ListRequest{Class: t.Class, ClusterID: cluster}
	for range maxPages {
		page, err := t.driver.List(t.Context(), req)
		if err != nil {
			return all, err
		}
		all = append(all, page)
		if page.Continue == "" {
			return all, nil
		}
		if page.Continue == req.Continue {
			t.fatalf("List returns the same Continue that it was given: it never ends")
		}
		req.Continue = page.Continue
	}
	t.fatalf("List does not end within %d pages", maxPages)
	return nil, nil
}

// checkExactlyOne checks that the known instance is the only instance of the subject.
func (t *trial) checkExactlyOne(s *subject) {
	t.Helper()
	t.awaitVisible(s)
	found := t.listed(s)
	if len(found) != 1 || found[0].ProviderID != s.providerID {
		t.Errorf("the machine has %d instances, %v; want exactly one, %s", len(found), ids(found), s.providerID)
	}
}

func ids(all []provider.Instance) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].ProviderID
	}
	return out
}

func (t *trial) delete(d provider.Driver, req provider.DeleteRequest) {
	t.Helper()
	t.await("Delete reports Gone", func() (bool, string) {
		result, err := d.Delete(t.Context(), req)
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error() // Machinist retries.
		}
		t.must(err, "Delete of %q", req.ProviderID)
		return result.Gone, "it does not report Gone"
	})
}

// awaitGone waits until Get and List no longer find the subject's instance, because reads may lag behind.
func (t *trial) awaitGone(s *subject) {
	t.Helper()
	t.await("Get and List no longer find the instance that Delete reported Gone", func() (bool, string) {
		checks := map[string]provider.GetRequest{"tags": t.byTags(s)}
		if s.providerID != "" {
			checks["provider ID"] = t.byID(s)
		}
		for how, req := range checks {
			in, err := t.driver.Get(t.Context(), req)
			if err == nil {
				return false, fmt.Sprintf("Get by %s still shows %s in state %s", how, in.ProviderID, in.State)
			}
			if !provider.IsNotFound(err) {
				t.fatalf("Get by %s of a deleted instance: %v, want NotFound", how, err)
			}
		}
		return len(t.listed(s)) == 0, "List still shows the instance"
	})
}

// await polls until done returns true. The function done also returns a text that describes the current state.
func (t *trial) await(what string, done func() (bool, string)) {
	t.Helper()
	t.awaitFor(t.Timeout, what, done)
}

// awaitFor is like await with another timeout. The last poll begins after the timeout.
func (t *trial) awaitFor(within time.Duration, what string, done func() (bool, string)) {
	t.Helper()
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		late := time.Since(began) >= within
		ok, state := done()
		if ok {
			return
		}
		if late {
			t.fatalf("timed out after %s: %s: %s", within, what, state)
		}
		next := time.NewTimer(min(pause, within-time.Since(began)))
		select {
		case <-next.C:
		case <-t.Context().Done():
			next.Stop()
			t.fatalf("the test ended while waiting: %s: %s", what, state)
		}
	}
}

func (t *trial) waitSince(after time.Time, long time.Duration) {
	t.Helper()
	timer := time.NewTimer(time.Until(after.Add(long)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.fatalf("the test ended while waiting")
	}
}

// lag returns the delay that faults add to the cloud. The delay is much shorter than CreateSettle, and short enough
// for a test.
func (t *trial) lag() time.Duration {
	return min(40*time.Millisecond, provider.CreateSettle(t.driver.driver)/4)
}

// retryCreate repeats a Create call until it returns the instance. An error after which Machinist would not repeat
// the call soon fails the case.
func (t *trial) retryCreate(d provider.Driver, s *subject, when string) (in *provider.Instance) {
	t.Helper()
	t.await("a repeated Create "+when+" returns the instance", func() (bool, string) {
		var err error
		if in, err = d.Create(t.Context(), t.createRequest(s)); err != nil {
			if code := provider.CodeOf(err); code.Terminal() || code == provider.NotFound {
				t.fatalf("a repeated Create %s: %v; want the instance or an error after which Machinist retries", when, err)
			}
			return false, err.Error()
		}
		if s.providerID != "" && in.ProviderID != s.providerID {
			t.fatalf("a repeated Create %s returns %q, want %q as before", when, in.ProviderID, s.providerID)
		}
		s.providerID, s.scope = in.ProviderID, in.Scope
		return true, ""
	})
	return in
}

// deleteAsMachinist calls Delete until Machinist would consider the instance deleted, by the rules of
// provider.Driver. deleteAsMachinist retries after Aborted and after the tolerated codes.
func (t *trial) deleteAsMachinist(d provider.Driver, req provider.DeleteRequest, createEnded time.Time,
	tolerated ...provider.Code) {
	t.Helper()
	settle := provider.CreateSettle(t.driver.driver)
	accepted := false
	t.awaitFor(max(t.Timeout, 2*settle), "Delete reports Gone, and Machinist relies on it", func() (bool, string) {
		began := time.Now()
		result, err := d.Delete(t.Context(), req)
		if code := provider.CodeOf(err); code == provider.Aborted || slices.Contains(tolerated, code) {
			return false, err.Error()
		}
		t.must(err, "Delete of %q", req.ProviderID)
		switch {
		case !result.Gone:
			accepted = true
			return false, "Delete does not report Gone"
		case result.Found || accepted:
			return true, ""
		case began.Sub(createEnded) < settle:
			return false, "the first Delete reports Gone without Found, and CreateSettle has not passed since Create"
		}
		_, err = d.Get(t.Context(), provider.GetRequest(req))
		return provider.IsNotFound(err), fmt.Sprintf("Delete reports Gone, but Get returns %v", err)
	})
}

func (t *trial) checkNothingLeft(before map[string]bool, what string, args ...any) {
	t.Helper()
	if left := t.newResources(before); len(left) > 0 {
		t.Errorf("%s leaves %v", fmt.Sprintf(what, args...), left)
	}
}

func (t *trial) wantCode(err error, attempted string, want ...provider.Code) bool {
	t.Helper()
	if slices.Contains(want, provider.CodeOf(err)) {
		return true
	}
	names := make([]string, len(want))
	for i, code := range want {
		names[i] = string(code)
	}
	t.Errorf("%s: %v; want an error with code %s", attempted, err, strings.Join(names, " or "))
	return false
}
