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

// Rule is one way to fail or to lag.
type Rule struct {
	// Answer, where it is not nil, says what a call is answered with instead of OpenStack's answer. It returns nil for
	// calls that it leaves alone.
	Answer func(Call) *http.Response
	// Skip lets so many calls through first that Answer would answer.
	Skip int
	// Lose loses the answer of a call that was carried out.
	Lose func(Call) bool
	// Late carries the calls out this much after Answer has answered them; zero never does.
	Late time.Duration
	// Hang answers no call.
	Hang bool
	// Pad puts so many bytes of white space before every answer: readers stop at the end of what they read for.
	Pad int64

	// LateReads and LateLists are how far reads by ID, and lists, are behind. LateMetadata is for how long a new server is
	// shown without metadata.
	LateReads, LateLists, LateMetadata time.Duration
	// Unsteady has lists repeat an entry, in another order each time.
	Unsteady bool
	// GoesBack shows an earlier state in every third answer about a server.
	GoesBack bool
	// Flavor, where it is not empty, is the one that servers are made of instead of the one that was asked for.
	Flavor string
	// NoFilters has lists return everything, whatever they were asked for.
	NoFilters bool
	// PartsInUse refuses to delete ports and volumes for so long after a server went.
	PartsInUse time.Duration
	// QuotaFreesLate refuses servers beyond those that are there; those that go count for so long.
	QuotaFreesLate time.Duration
}

// Call is a call of the driver's.
type Call struct {
	Method string
	// Path is that of the URL.
	Path string
}

var serverPath = regexp.MustCompile(`/servers/([0-9a-f-]{36})$`)

// Writes reports whether the call changes something at a service. Signing in does not.
func (c Call) Writes() bool {
	return c.Method != http.MethodGet && !c.SignsIn()
}

// SignsIn reports whether the call asks Keystone for a token.
func (c Call) SignsIn() bool { return strings.HasSuffix(c.Path, "/auth/tokens") }

// MakesServer reports whether the call asks for a server.
func (c Call) MakesServer() bool {
	return c.Method == http.MethodPost && strings.HasSuffix(c.Path, "/servers")
}

// deletesPart reports whether the call deletes a port or a volume.
func (c Call) deletesPart() bool {
	dir := path.Dir(c.Path)
	return c.Method == http.MethodDelete && (strings.HasSuffix(dir, "/ports") || strings.HasSuffix(dir, "/volumes"))
}

// server is the ID of the server that the call is about, empty where it is about none.
func (c Call) server() string {
	if found := serverPath.FindStringSubmatch(c.Path); found != nil {
		return found[1]
	}
	return ""
}

// list is the key under which the answer has a list, empty where the call asks for none that matters.
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

// Transport is an http.RoundTripper that behaves by its rules. The zero value, with Base set, behaves well.
type Transport struct {
	// Base carries the calls.
	Base http.RoundTripper

	mu      sync.Mutex
	next    int
	rules   map[int]*rule
	things  map[string]*thing
	answers int
	// lastGone is when a server was last seen to be gone.
	lastGone time.Time
	late     sync.WaitGroup
}

// rule is a Rule with what it has seen.
type rule struct {
	Rule
	skipped int
	begun   time.Time
	// made is how many servers were made since the rule began.
	made int
}

// Inject adds a rule until end is called.
func (t *Transport) Inject(r Rule) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules == nil {
		t.rules = map[int]*rule{}
	}
	id := t.next
	t.next++
	t.rules[id] = &rule{Rule: r, begun: time.Now()}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.rules, id)
	}
}

// Wait returns when all that is done late is done.
func (t *Transport) Wait() { t.late.Wait() }

// current are the rules, the oldest first.
func (t *Transport) current() []*rule {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*rule, 0, len(t.rules))
	for _, id := range slices.Sorted(maps.Keys(t.rules)) {
		all = append(all, t.rules[id])
	}
	return all
}

// errLost is what a call ends with whose answer was lost.
var errLost = errors.New("the connection was closed before an answer came")

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	call, rules := Call{Method: r.Method, Path: r.URL.Path}, t.current()
	for _, rule := range rules {
		if rule.Hang {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		response := t.answered(rule, call)
		if response == nil {
			continue
		}
		if rule.Late > 0 {
			if err := t.doLate(r, rule.Late); err != nil {
				return nil, err
			}
		} else if r.Body != nil {
			_ = r.Body.Close()
		}
		response.Request = r
		return response, nil
	}
	r, err := sent(r, call, rules)
	if err != nil {
		return nil, err
	}
	response, err := t.Base.RoundTrip(r)
	if err != nil {
		return response, err
	}
	for _, rule := range rules {
		if rule.Lose != nil && rule.Lose(call) {
			_ = response.Body.Close()
			return nil, errLost
		}
	}
	return t.shown(r, call, rules, response)
}

// answered is what a rule answers a call with, nil where it lets it through.
func (t *Transport) answered(r *rule, call Call) *http.Response {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.QuotaFreesLate > 0 {
		return t.quota(r, call)
	}
	if r.PartsInUse > 0 && call.deletesPart() && time.Since(t.lastGone) < r.PartsInUse {
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

// quota refuses a server for which there is no quota: one is free for each that has been gone for long enough.
func (t *Transport) quota(r *rule, call Call) *http.Response {
	if !call.MakesServer() {
		return nil
	}
	free := -r.made
	for _, of := range t.things {
		if of.gone.After(r.begun) && time.Since(of.gone) > r.QuotaFreesLate {
			free++
		}
	}
	if free <= 0 {
		return ErrorAnswer(http.StatusForbidden, "forbidden", "Quota exceeded for instances: Requested 1")
	}
	r.made++
	return nil
}

// doLate carries a call out after a while, whatever becomes of who made it.
func (t *Transport) doLate(r *http.Request, after time.Duration) error {
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

// ErrorAnswer is an answer as OpenStack's services write their errors, with headers as pairs of names and values.
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
