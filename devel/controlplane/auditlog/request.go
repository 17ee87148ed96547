package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Request describes one API request that the API server has answered.
type Request struct {
	User        string // authenticated user, before impersonation
	Groups      []string
	Verb        string // verb as in RBAC; "patch" for server-side apply
	Group       string // API group, "" for the core
	Resource    string // plural name, such as "machines"
	Subresource string // subresource such as "status"; "" for the resource itself
	Namespace   string
	Name        string // name of the object; "" if the server generates the name
	Path        string // path of a request without a resource, such as "/readyz"; else ""
	Code        int    // HTTP status of the answer
	Denied      bool   // true if the authorizer denied the request; admission may also reject with 403
	// NamespaceEnds means that a create was refused because the namespace is being deleted.
	NamespaceEnds bool
	DryRun        bool
	// ReceivedAt and AnsweredAt are the times of the request and the answer on the API server's clock.
	ReceivedAt, AnsweredAt time.Time
}

// entry contains the fields of an audit.k8s.io/v1 Event that this package uses.
type entry struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`
	ObjectRef *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int `json:"code"`
		Details struct {
			Causes []metav1.StatusCause `json:"causes"`
		} `json:"details"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
	Received    time.Time         `json:"requestReceivedTimestamp"`
	Answered    time.Time         `json:"stageTimestamp"`
}

const start = `{"kind":"Event",`

// parse parses a line. It returns false if the line is not the entry of an answered request.
//
// A killed API server may leave an incomplete line, to which the next API server appends its first entry. The request
// of an incomplete entry was never answered.
func parse(line []byte) (request Request, ok bool, err error) {
	if i := bytes.LastIndex(line, []byte(start)); i > 0 && !json.Valid(line) {
		line = line[i:]
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Request{}, false, fmt.Errorf("decode audit event %.200q: %w", line, err)
	}
	if e.Stage != "ResponseComplete" {
		return Request{}, false, nil
	}
	uri, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return Request{}, false, fmt.Errorf("parse request URI of audit event: %w", err)
	}
	r := Request{
		User:   e.User.Username,
		Groups: e.User.Groups,
		Verb:   e.Verb,
		Code:   e.ResponseStatus.Code,
		Denied: e.Annotations["authorization.k8s.io/decision"] == "forbid",
		NamespaceEnds: slices.ContainsFunc(e.ResponseStatus.Details.Causes, func(c metav1.StatusCause) bool {
			return c.Type == corev1.NamespaceTerminatingCause
		}),
		DryRun:     uri.Query().Has("dryRun"),
		ReceivedAt: e.Received,
		AnsweredAt: e.Answered,
	}
	if ref := e.ObjectRef; ref == nil {
		r.Path = uri.Path
	} else {
		r.Group, r.Resource, r.Subresource, r.Namespace, r.Name = ref.APIGroup, ref.Resource, ref.Subresource, ref.Namespace, ref.Name
	}
	return r, true, nil
}

// mutates returns true for a request to write an object, if this package counts such writes.
func (r Request) mutates() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	switch r.Group {
	case "coordination.k8s.io":
		return !r.DryRun && r.Resource != "leases"
	case "authentication.k8s.io", "authorization.k8s.io":
		return !r.DryRun && !strings.HasSuffix(r.Resource, "reviews")
	}
	return !r.DryRun
}

func (r Request) isEvent() bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

func (r Request) succeeded() bool {
	return r.Code >= http.StatusOK && r.Code < http.StatusMultipleChoices
}
