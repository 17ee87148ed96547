package process

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

const (
	deniedReminder = 10 * time.Minute
	deniedRecheck  = 5 * time.Second
	deniedTimeout  = 5 * time.Second
)

type right authorizationv1.ResourceAttributes

// String returns a text such as "update leases.coordination.k8s.io in namespace machinist-system".
func (r right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// denials contains the rights that a cluster has denied to this process. A request is forbidden because of a missing
// right or by an admission check, so this process asks the cluster whether the right is missing. The process repeats
// this question regularly, because an administrator may grant the right later.
type denials struct {
	cluster string
	path    string // path of the API server's address
	log     logr.Logger
	now     func() time.Time
	rights  authorizationclient.SelfSubjectAccessReviewInterface
	users   authenticationclient.SelfSubjectReviewInterface

	mu sync.Mutex
	// The keys of this map are rights without an object name, because few roles grant rights to single objects.
	known map[right]*denied
}

type denied struct {
	right   right // the denied right, with the name of the first object
	since   time.Time
	missing atomic.Bool

	mu              sync.Mutex // held while the cluster is asked
	checked, logged time.Time
}

func newDenials(cluster, host string, log logr.Logger) *denials {
	d := &denials{cluster: cluster, log: log, now: time.Now, known: map[right]*denied{}}
	if address, err := url.Parse(host); err == nil {
		d.path = strings.TrimSuffix(address.Path, "/")
	}
	return d
}

// watch wraps the transport of a client. For each forbidden request, it records the right that the request needs.
func (d *denials) watch(next http.RoundTripper) http.RoundTripper { return denialTransport{next, d} }

type denialTransport struct {
	next http.RoundTripper
	to   *denials
}

// RoundTrip implements http.RoundTripper.
func (t denialTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusForbidden {
		if r, ok := t.to.rightOf(request); ok {
			t.to.add(request.Context(), r)
		}
	}
	return response, err
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t denialTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// rightOf returns the right that a request needs, as the API server derives it. It returns false for a request that
// accesses no resource, and for an access review of this process.
func (d *denials) rightOf(r *http.Request) (right, bool) {
	factory := apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(&http.Request{Method: r.Method,
		URL: &url.URL{Path: strings.TrimPrefix(r.URL.Path, d.path), RawQuery: r.URL.RawQuery}})
	if err != nil || !info.IsResourceRequest || info.APIGroup == authorizationv1.GroupName ||
		info.APIGroup == authenticationv1.GroupName {
		return right{}, false
	}
	return right{Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name}, true
}

func (d *denials) add(ctx context.Context, r right) {
	key := r
	key.Name = ""
	d.mu.Lock()
	known := d.known[key]
	if known == nil {
		known = &denied{right: r, since: d.now()}
		d.known[key] = known
	}
	d.mu.Unlock()
	d.isMissing(ctx, known)
}

// firstMissing returns the right that has been missing for the longest time. firstMissing considers only the selected
// rights.
func (d *denials) firstMissing(ctx context.Context, selects func(right) bool) (right, bool) {
	d.mu.Lock()
	candidates := slices.SortedFunc(maps.Values(d.known), func(a, b *denied) int { return a.since.Compare(b.since) })
	d.mu.Unlock()
	for _, known := range candidates {
		if selects(known.right) && known.missing.Load() && d.isMissing(ctx, known) {
			return known.right, true
		}
	}
	return right{}, false
}

// isMissing returns true if a right is missing, and logs the missing right. isMissing asks the cluster at most once
// every deniedRecheck. If the cluster does not answer, the right counts as missing.
func (d *denials) isMissing(ctx context.Context, known *denied) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deniedTimeout)
	defer cancel()
	known.mu.Lock()
	defer known.mu.Unlock()
	now := d.now()
	if now.Sub(known.checked) >= deniedRecheck {
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = (*authorizationv1.ResourceAttributes)(&known.right)
		review, err := d.rights.Create(ctx, review, metav1.CreateOptions{})
		known.missing.Store(err != nil || !review.Status.Allowed)
		known.checked = now
	}
	missing := known.missing.Load()
	switch {
	case missing && now.Sub(known.logged) >= deniedReminder:
		known.logged = now
		user := ""
		if self, err := d.users.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil {
			user = self.Status.UserInfo.Username
		}
		d.log.Info("This process lacks a right", "cluster", d.cluster, "right", known.right.String(), "user", user,
			"remedy", "bind the roles of this process to this user")
	case !missing && !known.logged.IsZero():
		known.logged = time.Time{}
		d.log.Info("This process now has a right that it lacked", "cluster", d.cluster, "right", known.right.String())
	}
	return missing
}

// essential reports whether the process needs a right in the control cluster to be ready. The process can work
// without the right to write events. If the function must not read a Secret, a condition of the class reports the
// problem.
func essential(r right) bool {
	return r.Resource != "events" && !(r.Resource == "secrets" && r.Verb == "get")
}
