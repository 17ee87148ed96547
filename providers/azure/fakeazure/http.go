package fakeazure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// failure is an error as Azure writes it.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
type failure struct {
	status        int
	code, message string
}

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// call is one request. The lock is held while it is served.
type call struct {
	azure     *Azure
	w         http.ResponseWriter
	r         *http.Request
	operation string // "VirtualMachines_Get"
	version   string // of the API
	raw       []byte
	body      object
	// asyncFailure is how the operation that the call begins is to end.
	asyncFailure *failure
}

// maxBody is more than any request is long.
const maxBody = 4 << 20

// ServeHTTP implements http.Handler.
func (a *Azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid())
	if a.serveTokens(w, r) {
		return
	}
	c := &call{azure: a, w: w, r: r, version: r.URL.Query().Get("api-version")}
	route, params := match(r.Method, r.URL.Path)
	if route != nil {
		c.operation = route.operation
	}
	var err error
	if c.raw, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return // The client went away, or sends what nobody would.
	}
	before, after := a.inject(c)
	if before != nil && !before.effect(c) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[c.operation]++
	if f := c.admit(route, c.raw); f != nil {
		c.refuse(f)
		return
	}
	if after != nil {
		if after.AsyncCode != "" {
			c.asyncFailure = fail(http.StatusConflict, after.AsyncCode, "%s", after.message())
		}
		if after.LoseAnswer {
			c.w = &deaf{header: http.Header{}}
			route.serve(c, params)
			panic(http.ErrAbortHandler) // The connection ends without an answer; the lock is released on the way.
		}
	}
	route.serve(c, params)
}

// deaf is where an answer goes that nobody is to hear.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header            { return d.header }
func (d *deaf) Write(data []byte) (int, error) { return len(data), nil }
func (d *deaf) WriteHeader(int)                {}

// admit checks what is common to all requests, and reads the body.
func (c *call) admit(route *route, raw []byte) *failure {
	if f := c.azure.authorize(c.r); f != nil {
		c.w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="https://login.windows.net/`+c.azure.options.Tenant+`", error="invalid_token"`)
		return f
	}
	if route == nil {
		return fail(http.StatusNotFound, "InvalidResourceType", "The resource type could not be found for %s %s.", c.r.Method, c.r.URL.Path)
	}
	if sub := subscriptionIn(c.r.URL.Path); !strings.EqualFold(sub, c.azure.options.Subscription) {
		return fail(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", sub)
	}
	// https://learn.microsoft.com/rest/api/azure/ (section on the components of a request)
	switch {
	case c.version == "":
		return fail(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	case !slices.Contains(route.versions, c.version):
		return fail(http.StatusBadRequest, "InvalidApiVersionParameter", "The api-version '%s' is invalid. The supported versions are '%s'.", c.version, strings.Join(route.versions, ","))
	}
	if group := groupIn(c.r.URL.Path); group != "" && c.azure.find(c.azure.groupID(group)) == nil && route.operation != "ResourceGroups_Get" {
		return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", group)
	}
	if c.r.Method != http.MethodPut && c.r.Method != http.MethodPatch {
		return c.permits()
	}
	if !strings.HasPrefix(c.r.Header.Get("Content-Type"), "application/json") {
		return fail(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "The content media type '%s' is not supported. Only 'application/json' is supported.", c.r.Header.Get("Content-Type"))
	}
	if err := json.Unmarshal(raw, &c.body); err != nil || c.body == nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized.")
	}
	return c.permits()
}

func subscriptionIn(path string) string { return segmentAfter(path, "subscriptions") }
func groupIn(path string) string        { return segmentAfter(path, "resourcegroups") }

func segmentAfter(path, name string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts[:len(parts)-1] {
		if strings.EqualFold(part, name) {
			return parts[i+1]
		}
	}
	return ""
}

// base is how the client called the endpoint.
func (c *call) base() string {
	scheme := "http"
	if c.r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + c.r.Host
}

func (c *call) answer(status int, body any) {
	if body == nil {
		c.w.WriteHeader(status)
		return
	}
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	_ = json.NewEncoder(c.w).Encode(body) // The client may have gone.
}

func (c *call) refuse(f *failure) {
	c.w.Header().Set("x-ms-error-code", f.code)
	c.answer(f.status, object{"error": object{"code": f.code, "message": f.message}})
}

// conditions checks If-Match and If-None-Match.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update
func (c *call) conditions(r *resource) *failure {
	if want := c.r.Header.Get("If-Match"); want != "" && want != "*" && (r == nil || want != r.quoted()) || want == "*" && r == nil {
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "The condition in If-Match is not met.")
	}
	switch none := c.r.Header.Get("If-None-Match"); {
	case none != "" && none != "*":
		return fail(http.StatusBadRequest, "InvalidParameter", "If-None-Match takes '*' only.")
	case none == "*" && r != nil:
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "The resource exists already.")
	}
	return nil
}

// page answers with a list, and with a link to the rest of it.
// https://learn.microsoft.com/rest/api/azure/ (section on paged responses)
func (c *call) page(all []object) {
	from := 0
	if token := c.r.URL.Query().Get("$skiptoken"); token != "" {
		n, err := strconv.Atoi(token)
		if err != nil || n < 0 {
			c.refuse(fail(http.StatusBadRequest, "InvalidSkipToken", "The skip token is invalid."))
			return
		}
		from = min(n, len(all))
	}
	to := min(from+c.azure.options.PageSize, len(all))
	out := object{"value": append([]object{}, all[from:to]...)}
	if to < len(all) {
		next := *c.r.URL
		query := next.Query()
		query.Set("$skiptoken", strconv.Itoa(to))
		out["nextLink"] = c.base() + next.Path + "?" + query.Encode()
	}
	c.answer(http.StatusOK, out)
}
