package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Front serves one Server over HTTP with JSON as kube-apiserver does: discovery, reads, writes, subresources and
// watches. A Front is safe for concurrent use. Tests of real managers and clients use it.
//
// Front does not authenticate or authorize requests. The user of a request is the user that the client impersonates. A
// Front returns neither tables nor protobuf, and does not support strict field validation. A Front runs the definition
// controller, which is part of kube-apiserver, and no other background controller.
type Front struct {
	mu        sync.Mutex
	server    *Server
	committed chan struct{}
	revision  int64
	// hiddenGroup is an API group that Front does not serve.
	hiddenGroup string
	pages       map[string]remainder
}

// remainder is the unread part of a list at the revision of its first page.
type remainder struct {
	items           []unstructured.Unstructured
	resourceVersion string
}

// Administrator is the actor of a request that impersonates no user.
const Administrator = "administrator"

// NewFront makes a server available over HTTP. The caller must no longer use the server directly.
func NewFront(s *Server) *Front {
	return &Front{server: s, committed: make(chan struct{}), revision: s.Revision(), pages: map[string]remainder{}}
}

// Hide removes an API group from the front, as if it were not installed.
func (f *Front) Hide(group string) { f.hiddenGroup = group }

func (f *Front) serves(k *kind) bool {
	return (f.hiddenGroup == "" || k.gvk.Group != f.hiddenGroup) && f.server.served(k)
}

func (f *Front) locked(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := do()
	f.server.runDefinitionSteps()
	if now := f.server.Revision(); now != f.revision {
		f.revision = now
		close(f.committed)
		f.committed = make(chan struct{})
	}
	return err
}

type call struct {
	kind      *kind
	namespace string
	name      string
	sub       string
	actor     string
	list      client.ListOptions
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer, ok := f.discover(r.URL.Path); ok {
		write(w, http.StatusOK, answer)
		return
	}
	c, err := f.route(r)
	if err == nil && r.Method == http.MethodGet && c.name == "" && r.URL.Query().Get("watch") != "" {
		f.watchHTTP(w, r, c)
		return
	}
	var answer any
	if err == nil {
		code := http.StatusOK
		if r.Method == http.MethodPost {
			code = http.StatusCreated
		}
		err = f.locked(func() error {
			answer, err = f.do(r, c)
			return err
		})
		if err == nil {
			write(w, code, onlyMetadata(r, answer))
			return
		}
	}
	status := statusOf(err)
	write(w, int(status.Code), status)
}

func write(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// If the encoding fails, the client sees a truncated response.
	_ = json.NewEncoder(w).Encode(answer)
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	var status metav1.Status
	switch {
	case errors.As(err, &known):
		status = known.Status()
	case meta.IsNoMatchError(err):
		status = notServed().Status()
	default:
		status = apierrors.NewInternalError(err).Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

func notServed() *apierrors.StatusError {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "",
		"the server could not find the requested resource", 0, true)
}

func (f *Front) route(r *http.Request) (call, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return call{}, notServed()
	}
	c := call{actor: r.Header.Get("Impersonate-User")}
	if c.actor == "" {
		c.actor = Administrator
	}
	if len(parts) > 2 && parts[0] == "namespaces" && f.server.registry.resource(gv, parts[2]) != nil {
		c.namespace, parts = parts[1], parts[2:]
	}
	c.kind = f.server.registry.resource(gv, parts[0])
	if c.kind == nil || f.hiddenGroup != "" && gv.Group == f.hiddenGroup || len(parts) > 3 {
		return c, notServed()
	}
	parts = append(parts, "", "")
	c.name, c.sub = parts[1], parts[2]
	query := r.URL.Query()
	c.list.Namespace = c.namespace
	var err error
	if c.list.LabelSelector, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	if c.list.FieldSelector, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	return c, nil
}

func (r *registry) resource(gv schema.GroupVersion, plural string) *kind {
	for _, k := range r.kinds {
		if k.plural == plural && k.gvk.GroupVersion() == gv {
			return k
		}
	}
	return nil
}

func (c call) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(c.kind.gvk)
	o.SetNamespace(c.namespace)
	o.SetName(c.name)
	return o
}

func (c call) body(r *http.Request) (*unstructured.Unstructured, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	o := &unstructured.Unstructured{}
	if err := unmarshal(data, &o.Object); err != nil || o.Object == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decode %q: %v", data, err))
	}
	o.SetGroupVersionKind(c.kind.gvk)
	if c.namespace != "" {
		o.SetNamespace(c.namespace)
	}
	return o, nil
}
