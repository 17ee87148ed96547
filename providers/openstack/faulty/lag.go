package faulty

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// resource records what the transport knows about a server, port or volume from earlier calls.
type resource struct {
	created, deleted time.Time
	// stopped is true if OpenStack has shown the server as stopped.
	stopped bool
	// entry is the resource in the last answer that OpenStack returned.
	entry map[string]any
}

// resource returns the record of an ID, and creates the record if it is missing. The caller holds t.mu.
func (t *Transport) resource(id string) *resource {
	if t.resources == nil {
		t.resources = map[string]*resource{}
	}
	if t.resources[id] == nil {
		t.resources[id] = &resource{}
	}
	return t.resources[id]
}

func (t *Transport) modifyResponse(r *http.Request, call Call, rules []*rule,
	response *http.Response) (*http.Response, error) {
	var late Rule
	for _, rule := range rules {
		late.LateReads = max(late.LateReads, rule.LateReads)
		late.LateLists = max(late.LateLists, rule.LateLists)
		late.LateMetadata = max(late.LateMetadata, rule.LateMetadata)
		late.UnsteadyLists = late.UnsteadyLists || rule.UnsteadyLists
		late.GoesBack = late.GoesBack || rule.GoesBack
		late.Pad = max(late.Pad, rule.Pad)
	}
	creates := call.Method == http.MethodPost && (call.CreatesServer() || strings.HasSuffix(call.Path, "/ports") ||
		strings.HasSuffix(call.Path, "/volumes"))
	if creates || call.server() != "" || call.list() != "" {
		raw, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		if changed := t.change(r.URL.Query(), call, late, response, raw); changed != nil {
			raw = changed
		}
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		response.Header.Del("Content-Length")
	}
	if late.Pad > 0 {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(spaces{}, late.Pad), response.Body), response.Body}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
	}
	return response, nil
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// change stores the state that a response shows, and replaces it with an outdated state if the rules require this. It
// returns the new body, or nil if the body stays the same.
func (t *Transport) change(query url.Values, call Call, late Rule, response *http.Response, raw []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers++
	var body map[string]any
	readable := json.Unmarshal(raw, &body) == nil
	id := call.server()
	switch {
	case call.Method == http.MethodPost && readable:
		for _, entry := range body {
			fields, _ := entry.(map[string]any)
			if createdID, _ := fields["id"].(string); createdID != "" {
				t.resource(createdID).created = time.Now()
			}
		}
		return nil
	case id != "" && call.Method == http.MethodGet && response.StatusCode == http.StatusNotFound:
		return t.keepDeleted(id, late, response)
	case id != "" && call.Method == http.MethodGet && readable:
		return t.server(id, late, response, body)
	case call.list() != "" && readable:
		entries, _ := body[call.list()].([]any)
		body[call.list()] = t.entries(query, call.list(), late, entries)
	default:
		return nil
	}
	out, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return out
}

// keepDeleted returns the last state of a deleted server while the rules delay the deletion in reads.
func (t *Transport) keepDeleted(id string, late Rule, response *http.Response) []byte {
	state := t.resource(id)
	if state.deleted.IsZero() {
		state.deleted = time.Now()
		t.lastDeleted = state.deleted
	}
	if state.entry == nil || time.Since(state.deleted) >= late.LateReads {
		return nil
	}
	out, err := json.Marshal(map[string]any{"server": state.entry})
	if err != nil {
		return nil
	}
	response.StatusCode, response.Status = http.StatusOK, "200 OK"
	return out
}

// server returns a server, or NotFound if reads do not show it yet.
func (t *Transport) server(id string, late Rule, response *http.Response, body map[string]any) []byte {
	entry, _ := body["server"].(map[string]any)
	if entry == nil {
		return nil
	}
	state := t.resource(id)
	state.stopped = state.stopped || entry["status"] == "SHUTOFF"
	if entry["OS-EXT-STS:task_state"] == nil || state.entry == nil {
		state.entry = entry
	}
	if time.Since(state.created) < late.LateReads {
		response.StatusCode, response.Status = http.StatusNotFound, "404 Not Found"
		out, _ := json.Marshal(map[string]any{"itemNotFound": map[string]any{"code": 404,
			"message": "Instance could not be found."}})
		return out
	}
	out, err := json.Marshal(map[string]any{"server": t.outdatedEntry(entry, state, late)})
	if err != nil {
		return nil
	}
	return out
}

// outdatedEntry returns a copy of a server. Depending on the rules, the copy has no metadata or an earlier state.
func (t *Transport) outdatedEntry(entry map[string]any, state *resource, late Rule) map[string]any {
	out := make(map[string]any, len(entry))
	for key, value := range entry {
		out[key] = value
	}
	if time.Since(state.created) < late.LateMetadata {
		out["metadata"] = map[string]any{}
	}
	if late.GoesBack && t.answers%3 == 0 {
		switch {
		case out["OS-EXT-STS:task_state"] == "deleting":
			out["OS-EXT-STS:task_state"] = nil
		case out["status"] == "ACTIVE" && state.stopped:
			out["status"], out["OS-EXT-STS:task_state"], out["OS-EXT-STS:power_state"] = "SHUTOFF", nil, 4
		case out["status"] == "ACTIVE":
			out["status"], out["OS-EXT-STS:task_state"] = "BUILD", "spawning"
		}
	}
	return out
}

func (t *Transport) entries(query url.Values, kind string, late Rule, all []any) []any {
	out := []any{} // An empty list must not be encoded as null.
	listed := map[string]bool{}
	for _, item := range all {
		entry, _ := item.(map[string]any)
		id, _ := entry["id"].(string)
		state := t.resource(id)
		listed[id] = true
		if time.Since(state.created) < late.LateLists {
			continue
		}
		if kind == "servers" {
			entry = t.outdatedEntry(entry, state, late)
		}
		out = append(out, entry)
	}
	if kind == "servers" && late.LateLists > 0 && query.Get("marker") == "" {
		pattern, err := regexp.Compile(query.Get("name"))
		for id, state := range t.resources {
			name, _ := state.entry["name"].(string)
			if err == nil && !listed[id] && state.entry != nil && time.Since(state.deleted) < late.LateLists &&
				pattern.MatchString(name) {
				out = append(out, state.entry)
			}
		}
	}
	if late.UnsteadyLists && len(out) > 0 {
		offset := t.answers % len(out)
		out = append(append(out[offset:len(out):len(out)], out[:offset]...), out[offset])
	}
	return out
}
