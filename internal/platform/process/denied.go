package process

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

const (
	// maxDenied bounds how many missing rights are remembered.
	maxDenied = 64
	// deniedReminder is how often a right is logged that is still missing.
	deniedReminder = 10 * time.Minute
	// deniedRecheck is the time between two questions whether a right is still missing.
	deniedRecheck = 5 * time.Second
	// deniedBody bounds what is read of an answer in order to find the right in it.
	deniedBody = 16 << 10
)

// right is what a request needs.
type right struct {
	verb, group, resource, subresource, namespace, name string
}

// String returns a right as in "update leases.coordination.k8s.io in namespace machinist-system".
func (r right) String() string {
	text := r.verb + " " + r.resource
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.group != "" {
		text += "." + r.group
	}
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	return text
}

// denials are the rights that a cluster denied to this process. They are learned from the answers to its own requests,
// which name them: that costs no request, needs no list of rights, and is right for every authorizer. A right is
// forgotten when the cluster is asked about it again and grants it.
type denials struct {
	cluster string
	log     logr.Logger
	now     func() time.Time

	mu    sync.Mutex
	known map[right]*denied
	order []right // the oldest first
}

type denied struct {
	user            string
	logged, checked time.Time
}

func newDenials(cluster string, log logr.Logger) *denials {
	return &denials{cluster: cluster, log: log, now: time.Now, known: map[right]*denied{}}
}

// watch has the denials see the answers to requests of clients that are made from a configuration.
func (d *denials) watch(next http.RoundTripper) http.RoundTripper { return denialTransport{next, d} }

type denialTransport struct {
	next http.RoundTripper
	to   *denials
}

// RoundTrip implements http.RoundTripper.
func (t denialTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusForbidden {
		return response, err
	}
	begin, err := io.ReadAll(io.LimitReader(response.Body, deniedBody))
	if err != nil {
		return response, nil // Whoever reads the rest meets the error.
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), response.Body), response.Body}
	if missing, user, ok := parseDenied(begin); ok {
		t.to.add(missing, user)
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t denialTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// deniedText is how an API server words that the authorizer denied a request, in JSON (with escaped quotes) and in
// Protobuf. What admission denies is worded otherwise, and is no missing right.
var deniedText = regexp.MustCompile(`(?:\\?"([^"\\]+)\\?" )?is forbidden: User \\?"([^"\\]*)\\?" cannot (\w+) resource \\?"([^"\\]+)\\?"` +
	` in API group \\?"([^"\\]*)\\?"(?: in the namespace \\?"([^"\\]+)\\?")?`)

func parseDenied(answer []byte) (missing right, user string, ok bool) {
	m := deniedText.FindSubmatch(answer)
	if m == nil {
		return right{}, "", false
	}
	resource, subresource, _ := strings.Cut(string(m[4]), "/")
	return right{verb: string(m[3]), group: string(m[5]), resource: resource, subresource: subresource,
		namespace: string(m[6]), name: string(m[1])}, string(m[2]), true
}

// add remembers a right, and logs it at first and now and then.
func (d *denials) add(missing right, user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	// One that differs by the object only is the same right, unless a role is for single objects: the first one stands for
	// all.
	for r, known := range d.known {
		r.name = missing.name
		if r == missing {
			if now.Sub(known.logged) >= deniedReminder {
				known.logged = now
				d.report(missing, user, "This process still lacks a right")
			}
			return
		}
	}
	if len(d.order) >= maxDenied {
		return
	}
	d.known[missing] = &denied{user: user, logged: now, checked: now}
	d.order = append(d.order, missing)
	d.report(missing, user, "This process lacks a right")
}

func (d *denials) report(missing right, user, message string) {
	d.log.Info(message, "cluster", d.cluster, "right", missing.String(), "user", user,
		"remedy", "bind the roles of this process to that user")
}

// first returns the right that is missing for the longest time among those that count. It asks the cluster about each
// that was not asked about lately, and forgets those that are granted by now.
func (d *denials) first(ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface,
	counts func(right) bool) (right, bool) {
	d.mu.Lock()
	candidates := append([]right(nil), d.order...)
	d.mu.Unlock()
	for _, r := range candidates {
		if counts(r) && d.stillMissing(ctx, reviews, r) {
			return r, true
		}
	}
	return right{}, false
}

// stillMissing reports whether a right is missing, as far as is known. The question is asked without the lock, which
// requests need.
func (d *denials) stillMissing(ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface,
	r right) bool {
	d.mu.Lock()
	known := d.known[r]
	now := d.now()
	due := known != nil && now.Sub(known.checked) >= deniedRecheck
	if due {
		known.checked = now
	}
	d.mu.Unlock()
	if !due {
		return known != nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: r.resource,
			Subresource: r.subresource, Namespace: r.namespace, Name: r.name}}}
	review, err := reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[r] == nil {
		return false
	}
	delete(d.known, r)
	for i := range d.order {
		if d.order[i] == r {
			d.order = append(d.order[:i:i], d.order[i+1:]...)
			break
		}
	}
	d.log.Info("This process has a right that it lacked", "cluster", d.cluster, "right", r.String(), "user", known.user)
	return false
}

// essential reports whether a process that lacks a right in the control cluster is not ready. Without events it does
// its work, and a Secret that it may not get is reported by the condition of the class that refers to it.
func essential(r right) bool {
	return r.resource != "events" && !(r.resource == "secrets" && r.verb == "get")
}
