package fakeazure

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// maxBody is larger than any valid request.
const maxBody = 4 << 20

// ServeHTTP implements http.Handler.
func (a *Azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid())
	a.withClock(w.Header())
	if a.serveTokens(w, r) {
		return
	}
	query := r.URL.Query()
	c := &call{
		azure:        a,
		Subscription: segmentAfter(r.URL.Path, "subscriptions"), Group: segmentAfter(r.URL.Path, "resourcegroups"),
		Version:       query.Get("api-version"),
		Authorization: r.Header.Get("Authorization"), ContentType: r.Header.Get("Content-Type"),
		IfMatch: r.Header.Get("If-Match"), IfNoneMatch: r.Header.Get("If-None-Match"),
		Expand: query.Get("$expand"), Filter: query.Get("$filter"), SkipToken: query.Get("$skiptoken"),
		Monitor: query.Get("monitor") == "true",
	}
	if route, names := match(r.Method, r.URL.Path); route != nil {
		c.Operation, c.Names = route.operation, names
	}
	var err error
	if c.Body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return // The client has disconnected, or the request is too long.
	}
	out, err := a.do(r.Context(), c)
	if err != nil {
		panic(http.ErrAbortHandler) // Close the connection without an answer.
	}
	out.write(w, r)
}

// write sends the response, with the links for polling an operation or reading the next page.
func (out Answer) write(w http.ResponseWriter, r *http.Request) {
	base := "http://" + r.Host
	if r.TLS != nil {
		base = "https://" + r.Host
	}
	if out.Operation != "" {
		query := "api-version=" + r.URL.Query().Get("api-version")
		w.Header().Set("Azure-AsyncOperation", base+out.Operation+"?"+query)
		w.Header().Set("Location", base+out.Operation+"?monitor=true&"+query)
		w.Header().Set("Retry-After", "0")
	}
	if out.SkipToken != "" {
		query := r.URL.Query()
		query.Set("$skiptoken", out.SkipToken)
		out.Body["nextLink"] = base + r.URL.Path + "?" + query.Encode()
	}
	for key, values := range out.Header {
		w.Header()[key] = values
	}
	if out.Code != "" {
		w.Header().Set("x-ms-error-code", out.Code)
	}
	if out.Body == nil {
		w.WriteHeader(out.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(out.Status)
	_ = json.NewEncoder(w).Encode(out.Body) // The client may have disconnected.
}

func segmentAfter(path, name string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts[:len(parts)-1] {
		if strings.EqualFold(part, name) {
			return parts[i+1]
		}
	}
	return ""
}
