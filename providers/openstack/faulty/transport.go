package faulty

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rule describes one kind of fault or lag.
type Rule struct {
	// Answer returns the response that replaces OpenStack's response, or nil for calls that the rule does not affect.
	Answer func(Call) *http.Response
	// Skip is the number of calls that are forwarded before Answer takes effect.
	Skip int
	// LosesAnswer is a function that selects calls whose answers are lost after OpenStack has executed the calls.
	LosesAnswer func(Call) bool
	// ExecuteAfter is the delay after which a call with an Answer is still executed. Zero means never.
	ExecuteAfter time.Duration
	// Hang is true if calls are not answered until their context ends.
	Hang bool
	// Pad is the number of bytes of white space before every answer. White space after an answer would have no effect,
	// because JSON decoders stop at the end of the value.
	Pad int64

	// LateReads and LateLists are the delays until reads by ID and lists show a change. LateMetadata is how long a new
	// server has no metadata.
	LateReads, LateLists, LateMetadata time.Duration
	// UnsteadyLists is true if each list has another order and contains one entry twice.
	UnsteadyLists bool
	// GoesBack shows an earlier state in every third answer about a server.
	GoesBack bool
	// Flavor replaces the requested flavor of servers, unless it is empty.
	Flavor string
	// NoFilters makes lists ignore their filters.
	NoFilters bool
	// PartsInUse is how long ports and volumes cannot be deleted after the deletion of a server.
	PartsInUse time.Duration
	// QuotaFreesLate is the time for which a deleted server still counts against the quota. If QuotaFreesLate is set,
	// the quota is the number of servers at the start of the rule.
	QuotaFreesLate time.Duration
}

// Call is an HTTP request of the driver.
type Call struct {
	Method string
	// Path is the path of the URL.
	Path string
}

var serverPath = regexp.MustCompile(`/servers/([0-9a-f-]{36})$`)

// Writes reports whether the call changes something. For a sign-in, the result is false.
func (c Call) Writes() bool {
	return c.Method != http.MethodGet && !c.SignsIn()
}

// SignsIn reports whether the call requests a token from Keystone.
func (c Call) SignsIn() bool { return strings.HasSuffix(c.Path, "/auth/tokens") }

// CreatesServer reports whether the call creates a server.
func (c Call) CreatesServer() bool {
	return c.Method == http.MethodPost && strings.HasSuffix(c.Path, "/servers")
}

func (c Call) deletesPart() bool {
	dir := path.Dir(c.Path)
	return c.Method == http.MethodDelete && (strings.HasSuffix(dir, "/ports") || strings.HasSuffix(dir, "/volumes"))
}

// server returns the ID of the server in the call, or an empty string.
func (c Call) server() string {
	if found := serverPath.FindStringSubmatch(c.Path); found != nil {
		return found[1]
	}
	return ""
}

// list returns the JSON key under which the answer contains a list. For calls that do not list servers, volumes or
// ports, the result is empty.
func (c Call) list() string {
	if c.Method != http.MethodGet {
		return ""
	}
	switch dir, last := path.Split(c.Path); {
	case last == "detail" && strings.HasSuffix(dir, "/servers/"):
		return "servers"
	case last == "detail" && strings.HasSuffix(dir, "/volumes/"):
		return "volumes"
	case last == "ports":
		return "ports"
	}
	return ""
}

// Transport applies rules to the calls of an http.RoundTripper. Base is required.
type Transport struct {
	// Base executes the calls.
	Base http.RoundTripper

	mu        sync.Mutex
	next      int
	rules     map[int]*rule
	resources map[string]*resource
	answers   int
	// lastDeleted is when the deletion of a server was last observed.
	lastDeleted time.Time
	late        sync.WaitGroup
}

type rule struct {
	Rule
	skipped int
	started time.Time
	// createdServers is the number of servers created since the rule was added.
	createdServers int
}

// Inject adds a rule and returns a function that removes it.
func (t *Transport) Inject(r Rule) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules == nil {
		t.rules = map[int]*rule{}
	}
	id := t.next
	t.next++
	t.rules[id] = &rule{Rule: r, started: time.Now()}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.rules, id)
	}
}

// Wait returns when all delayed calls have been executed.
func (t *Transport) Wait() { t.late.Wait() }

func (t *Transport) current() []*rule {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*rule, 0, len(t.rules))
	for _, id := range slices.Sorted(maps.Keys(t.rules)) {
		all = append(all, t.rules[id])
	}
	return all
}

// errLost is the error of a call whose answer was lost.
var errLost = errors.New("the connection was closed before an answer came")

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	call, rules := Call{Method: r.Method, Path: r.URL.Path}, t.current()
	for _, rule := range rules {
		if rule.Hang {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		response := t.answerFor(rule, call)
		if response == nil {
			continue
		}
		if rule.ExecuteAfter > 0 {
			if err := t.executeLate(r, rule.ExecuteAfter); err != nil {
				return nil, err
			}
		} else if r.Body != nil {
			_ = r.Body.Close()
		}
		response.Request = r
		return response, nil
	}
	r, err := modifyRequest(r, call, rules)
	if err != nil {
		return nil, err
	}
	response, err := t.Base.RoundTrip(r)
	if err != nil {
		return response, err
	}
	for _, rule := range rules {
		if rule.LosesAnswer != nil && rule.LosesAnswer(call) {
			_ = response.Body.Close()
			return nil, errLost
		}
	}
	return t.modifyResponse(r, call, rules, response)
}

// answerFor returns the rule's answer to a call, or nil to forward the call.
func (t *Transport) answerFor(r *rule, call Call) *http.Response {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.QuotaFreesLate > 0 {
		return t.quota(r, call)
	}
	if r.PartsInUse > 0 && call.deletesPart() && time.Since(t.lastDeleted) < r.PartsInUse {
		return ErrorAnswer(http.StatusConflict, "NeutronError", "Unable to complete operation: it is in use.")
	}
	if r.Answer == nil {
		return nil
	}
	response := r.Answer(call)
	if response != nil && r.skipped < r.Skip {
		r.skipped++
		return nil
	}
	return response
}

// quota returns a refusal if the call would create a server and the quota is exhausted. A deleted server counts against
// the quota for QuotaFreesLate.
func (t *Transport) quota(r *rule, call Call) *http.Response {
	if !call.CreatesServer() {
		return nil
	}
	free := -r.createdServers
	for _, of := range t.resources {
		if of.deleted.After(r.started) && time.Since(of.deleted) > r.QuotaFreesLate {
			free++
		}
	}
	if free <= 0 {
		return ErrorAnswer(http.StatusForbidden, "forbidden", "Quota exceeded for instances: Requested 1")
	}
	r.createdServers++
	return nil
}

// executeLate executes a call after a delay, even if the caller has canceled it.
func (t *Transport) executeLate(r *http.Request, after time.Duration) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return err
		}
		_ = r.Body.Close()
	}
	again := r.Clone(context.WithoutCancel(r.Context()))
	again.Body = io.NopCloser(bytes.NewReader(body))
	t.late.Add(1)
	time.AfterFunc(after, func() {
		defer t.late.Done()
		if response, err := t.Base.RoundTrip(again); err == nil {
			_ = response.Body.Close()
		}
	})
	return nil
}

// ErrorAnswer returns an error response in the format of OpenStack's services. The headers are pairs of names and
// values.
func ErrorAnswer(status int, key, message string, headers ...string) *http.Response {
	raw, _ := json.Marshal(map[string]any{key: map[string]any{"code": status, "message": message}}) // Never fails.
	response := &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)),
	}
	for i := 0; i+1 < len(headers); i += 2 {
		response.Header.Set(headers[i], headers[i+1])
	}
	return response
}
