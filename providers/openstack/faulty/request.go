package faulty

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

func modifyRequest(r *http.Request, call Call, rules []*rule) (*http.Request, error) {
	for _, rule := range rules {
		if rule.NoFilters && call.list() != "" {
			r = withoutFilters(r)
		}
		if rule.Flavor != "" && call.CreatesServer() {
			var err error
			if r, err = withFlavor(r, rule.Flavor); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// withoutFilters removes the filters, so that the list contains all entries.
func withoutFilters(r *http.Request) *http.Request {
	out, query := r.Clone(r.Context()), r.URL.Query()
	for key := range query {
		if key != "limit" && key != "marker" {
			query.Del(key)
		}
	}
	out.URL.RawQuery = query.Encode()
	return out
}

// withFlavor returns a request for a server with another flavor.
func withFlavor(r *http.Request, flavor string) (*http.Request, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	var body map[string]map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	if body["server"] != nil {
		body["server"]["flavorRef"] = flavor
	}
	if raw, err = json.Marshal(body); err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return out, nil
}
