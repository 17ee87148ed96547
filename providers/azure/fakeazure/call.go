package fakeazure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// call is a parsed request that is being executed. Callers of its methods must hold azure.mu.
type call struct {
	azure *Azure
	// Operation is a name of the published API, such as "VirtualMachines_Get". Unknown operations are refused.
	Operation string
	// Subscription, Group and Names are parts of the URL path. Names contains all names in the path except the
	// subscription and the resource group, in order.
	Subscription, Group string
	Names               []string
	// Version is the API version.
	Version string
	// Authorization, ContentType, IfMatch and IfNoneMatch are headers.
	Authorization, ContentType, IfMatch, IfNoneMatch string
	// Expand, Filter, SkipToken and Monitor are parameters of the URL query. If Monitor is true, the call polls the
	// Location link of an operation. If Monitor is false, the call reads the status of the operation.
	Expand, Filter, SkipToken string
	Monitor                   bool
	// Body is the JSON body, and body is the object that it contains.
	Body []byte
	body object
	// asyncFailure is the error of the operation that this call starts, or nil for success.
	asyncFailure *failure
}

// Answer is the response to a call.
type Answer struct {
	Status int
	// Code is the error code, which is also in the body, or empty.
	Code string
	// Header contains all headers except those about an operation or the body.
	Header http.Header
	// Body is the JSON body, or nil.
	Body map[string]any
	// Operation is the path of the asynchronous operation that the call started, or empty.
	Operation string
	// SkipToken is the token for the next page of a list, or empty on the last page.
	SkipToken string
}

// errNoAnswer means that a call gets no response.
var errNoAnswer = errors.New("the connection ends without an answer")

// failure is an error in Azure's format.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
type failure struct {
	status        int
	code, message string
}

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func answer(status int, body object) Answer {
	return Answer{Status: status, Header: http.Header{}, Body: body}
}

func refuse(f *failure) Answer {
	out := answer(f.status, object{"error": object{"code": f.code, "message": f.message}})
	out.Code = f.code
	return out
}

// do executes a call. Without a response, it returns errNoAnswer or the error of the context.
func (a *Azure) do(ctx context.Context, c *call) (Answer, error) {
	before, after := a.inject(c)
	if before != nil {
		if out, err := before.effect(ctx, c); out != nil || err != nil {
			return value(out), err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if after != nil && after.AsyncCode != "" {
		c.asyncFailure = fail(http.StatusConflict, after.AsyncCode, "%s", after.message())
	}
	out := c.serve()
	if after != nil && after.LoseAnswer {
		return Answer{}, errNoAnswer
	}
	return out, nil
}

// serve checks and executes the call. The caller holds the lock.
func (c *call) serve() Answer {
	c.azure.calls[c.Operation]++
	if f := c.azure.authorize(c.Authorization); f != nil {
		out := refuse(f)
		out.Header.Set("WWW-Authenticate", `Bearer authorization_uri="https://login.windows.net/`+c.azure.options.Tenant+
			`", error="invalid_token"`)
		return out
	}
	route := routeOf(c.Operation)
	if f := c.admit(route); f != nil {
		return refuse(f)
	}
	return route.serve(c)
}

// admit performs the common checks of all requests, and parses the body.
func (c *call) admit(route *route) *failure {
	if route == nil {
		return fail(http.StatusNotFound, "InvalidResourceType", "The resource type could not be found.")
	}
	if !strings.EqualFold(c.Subscription, c.azure.options.Subscription) {
		return fail(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", c.Subscription)
	}
	// https://learn.microsoft.com/rest/api/azure/ (section on the components of a request)
	switch {
	case c.Version == "":
		return fail(http.StatusBadRequest, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	case !slices.Contains(route.versions, c.Version):
		return fail(http.StatusBadRequest, "InvalidApiVersionParameter",
			"The api-version '%s' is invalid. The supported versions are '%s'.", c.Version, strings.Join(route.versions, ","))
	}
	if c.Group != "" && c.azure.find(c.azure.groupID(c.Group)) == nil && route.operation != "ResourceGroups_Get" {
		return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", c.Group)
	}
	if route.method != http.MethodPut && route.method != http.MethodPatch {
		return c.checkPermissions()
	}
	if !strings.HasPrefix(c.ContentType, "application/json") {
		return fail(http.StatusUnsupportedMediaType, "UnsupportedMediaType",
			"The content media type '%s' is not supported. Only 'application/json' is supported.", c.ContentType)
	}
	if err := json.Unmarshal(c.Body, &c.body); err != nil || c.body == nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent",
			"The request content was invalid and could not be deserialized.")
	}
	return c.checkPermissions()
}

// conditions checks the headers If-Match and If-None-Match.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update
func (c *call) conditions(r *resource) *failure {
	if want := c.IfMatch; want != "" && want != "*" && (r == nil || want != r.entityTag()) || want == "*" && r == nil {
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "The condition in If-Match is not met.")
	}
	switch none := c.IfNoneMatch; {
	case none != "" && none != "*":
		return fail(http.StatusBadRequest, "InvalidParameter", "If-None-Match takes '*' only.")
	case none == "*" && r != nil:
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "The resource exists already.")
	}
	return nil
}

// page returns a page of a list, with the start of the next page.
// https://learn.microsoft.com/rest/api/azure/ (section on paged responses)
func (c *call) page(all []object) Answer {
	from := 0
	if c.SkipToken != "" {
		n, err := strconv.Atoi(c.SkipToken)
		if err != nil || n < 0 {
			return refuse(fail(http.StatusBadRequest, "InvalidSkipToken", "The skip token is invalid."))
		}
		from = min(n, len(all))
	}
	to := min(from+c.azure.options.PageSize, len(all))
	out := answer(http.StatusOK, object{"value": append([]object{}, all[from:to]...)})
	c.pad(out.Body)
	if to < len(all) {
		out.SkipToken = strconv.Itoa(to)
	}
	return out
}
