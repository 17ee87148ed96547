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
	// maxDenied is the greatest number of missing rights that are remembered.
	maxDenied = 64
	// deniedReminder is how often a right is logged while it is missing.
	deniedReminder = 10 * time.Minute
	// deniedRecheck is the shortest time between two questions whether a right is still missing.
	deniedRecheck = 5 * time.Second
	// deniedBody is how many bytes of an answer are searched for the missing right.
	deniedBody = 16 << 10
)

// right is a permission that a request needs.
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

// denials are the rights that a cluster denied to this process. They are learned from the rejections of its own
// requests, which name the missing right. This costs no request, needs no list of rights, and works with every
// authorizer. The cluster is asked again about a missing right from time to time. Once it has been granted, the right
// is forgotten.
type denials struct {
	cluster string
	log     logr.Logger
	now     func() time.Time

	mu    sync.Mutex
	known map[right]*denied
	order []right // oldest first
}

// denied describes when a right was denied to a user.
type denied struct {
	user            string
	logged, checked time.Time
}

func newDenials(cluster string, log logr.Logger) *denials {
	return &denials{cluster: cluster, log: log, now: time.Now, known: map[right]*denied{}}
}

// watch wraps the transport of a client, so that the denials learn from the answers to its requests.
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
		return response, nil // The reader of the rest gets the error.
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

// deniedText matches the text by which an API server reports a denial by the authorizer, in JSON (with escaped quotes)
// and in Protobuf. Denials by admission have other texts, and do not mean that a right is missing.
var deniedText = regexp.MustCompile(`(?:\\?"([^"\\]+)\\?" )?is forbidden: User \\?"([^"\\]*)\\?" cannot (\w+) resource \\?"([^"\\]+)\\?"` +
	` in API group \\?"([^"\\]*)\\?"(?: in the namespace \\?"([^"\\]+)\\?")?`)

// parseDenied returns the right that an answer denies, and the user to whom it is denied.
func parseDenied(answer []byte) (missing right, user string, ok bool) {
	m := deniedText.FindSubmatch(answer)
	if m == nil {
		return right{}, "", false
	}
	resource, subresource, _ := strings.Cut(string(m[4]), "/")
	return right{verb: string(m[3]), group: string(m[5]), resource: resource, subresource: subresource,
		namespace: string(m[6]), name: string(m[1])}, string(m[2]), true
}

// add remembers a missing right. It logs the right the first time, and again every deniedReminder.
func (d *denials) add(missing right, user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	// Rights that differ only in the name of the object count as one, and the first of them is remembered. They really
	// differ only if a role is for single objects.
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
		"remedy", "bind the roles of this process to this user")
}

// firstMissing returns the right that has been missing for the longest time, of those for which counts returns true. It
// asks the cluster about rights that were not checked recently, and forgets those that have been granted.
func (d *denials) firstMissing(ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface,
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

// stillMissing reports whether a right is missing, as far as is known. It asks the cluster without holding the lock,
// because requests need the lock.
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
	d.log.Info("This process now has a right that it lacked", "cluster", d.cluster, "right", r.String(), "user", known.user)
	return false
}

// essential reports whether the process is not ready without a right in the control cluster. It can work without
// events. If it may not get a Secret, the condition of the class that refers to the Secret reports that.
func essential(r right) bool {
	return r.resource != "events" && !(r.resource == "secrets" && r.verb == "get")
}
