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

// thing is a server, port or volume that a call has made, shown or deleted.
type thing struct {
	made, gone time.Time
	// entry is how it was shown last.
	entry map[string]any
}

// thing returns what is known of an ID. The caller has t.mu.
func (t *Transport) thing(id string) *thing {
	if t.things == nil {
		t.things = map[string]*thing{}
	}
	if t.things[id] == nil {
		t.things[id] = &thing{}
	}
	return t.things[id]
}

// shown is how OpenStack's answer reaches the driver.
func (t *Transport) shown(r *http.Request, call Call, rules []*rule, response *http.Response) (*http.Response, error) {
	var late Rule
	for _, rule := range rules {
		late.LateReads = max(late.LateReads, rule.LateReads)
		late.LateLists = max(late.LateLists, rule.LateLists)
		late.LateMetadata = max(late.LateMetadata, rule.LateMetadata)
		late.Unsteady = late.Unsteady || rule.Unsteady
		late.GoesBack = late.GoesBack || rule.GoesBack
		late.Pad = max(late.Pad, rule.Pad)
	}
	made := call.Method == http.MethodPost && (call.MakesServer() || strings.HasSuffix(call.Path, "/ports") ||
		strings.HasSuffix(call.Path, "/volumes"))
	if made || call.server() != "" || call.list() != "" {
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
		}{io.MultiReader(io.LimitReader(blank{}, late.Pad), response.Body), response.Body}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
	}
	return response, nil
}

// blank is white space without end.
type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// change learns from an answer, and returns it as the rules show it; nil leaves it alone.
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
			if made, _ := fields["id"].(string); made != "" {
				t.thing(made).made = time.Now()
			}
		}
		return nil
	case id != "" && call.Method == http.MethodGet && response.StatusCode == http.StatusNotFound:
		return t.stillShown(id, late, response)
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

// stillShown shows a server that is gone as it was, for a while.
func (t *Transport) stillShown(id string, late Rule, response *http.Response) []byte {
	of := t.thing(id)
	if of.gone.IsZero() {
		of.gone = time.Now()
		t.lastGone = of.gone
	}
	if of.entry == nil || time.Since(of.gone) >= late.LateReads {
		return nil
	}
	out, err := json.Marshal(map[string]any{"server": of.entry})
	if err != nil {
		return nil
	}
	response.StatusCode, response.Status = http.StatusOK, "200 OK"
	return out
}

// server shows one server, or that there is none yet.
func (t *Transport) server(id string, late Rule, response *http.Response, body map[string]any) []byte {
	entry, _ := body["server"].(map[string]any)
	if entry == nil {
		return nil
	}
	of := t.thing(id)
	if entry["OS-EXT-STS:task_state"] == nil || of.entry == nil {
		of.entry = entry
	}
	if time.Since(of.made) < late.LateReads {
		response.StatusCode, response.Status = http.StatusNotFound, "404 Not Found"
		out, _ := json.Marshal(map[string]any{"itemNotFound": map[string]any{"code": 404,
			"message": "Instance could not be found."}})
		return out
	}
	out, err := json.Marshal(map[string]any{"server": t.aged(entry, of, late)})
	if err != nil {
		return nil
	}
	return out
}

// aged is an entry without its metadata while it is new, or in an earlier state.
func (t *Transport) aged(entry map[string]any, of *thing, late Rule) map[string]any {
	out := make(map[string]any, len(entry))
	for key, value := range entry {
		out[key] = value
	}
	if time.Since(of.made) < late.LateMetadata {
		out["metadata"] = map[string]any{}
	}
	if late.GoesBack && t.answers%3 == 0 {
		switch {
		case out["OS-EXT-STS:task_state"] == "deleting":
			out["OS-EXT-STS:task_state"] = nil
		case out["status"] == "ACTIVE":
			out["status"], out["OS-EXT-STS:task_state"] = "BUILD", "spawning"
		}
	}
	return out
}

// entries are those of a list as the rules show them.
func (t *Transport) entries(query url.Values, kind string, late Rule, all []any) []any {
	out := []any{} // An empty list is not null.
	there := map[string]bool{}
	for _, one := range all {
		entry, _ := one.(map[string]any)
		id, _ := entry["id"].(string)
		of := t.thing(id)
		there[id] = true
		if time.Since(of.made) < late.LateLists {
			continue
		}
		if kind == "servers" {
			entry = t.aged(entry, of, late)
		}
		out = append(out, entry)
	}
	if kind == "servers" && late.LateLists > 0 && query.Get("marker") == "" {
		pattern, err := regexp.Compile(query.Get("name"))
		for id, of := range t.things {
			name, _ := of.entry["name"].(string)
			if err == nil && !there[id] && of.entry != nil && time.Since(of.gone) < late.LateLists && pattern.MatchString(name) {
				out = append(out, of.entry)
			}
		}
	}
	if late.Unsteady && len(out) > 0 {
		turn := t.answers % len(out)
		out = append(append(out[turn:len(out):len(out)], out[:turn]...), out[turn])
	}
	return out
}
