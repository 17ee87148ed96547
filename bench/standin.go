package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// standIn is a proxy for an API server. standIn answers reads of copies of recorded objects itself, and forwards all
// other requests to the API server. So the bench needs no time to create a large fleet, and no memory to store it:
// only the measured processes cache the copies. The copies never change.
type standIn struct {
	copies  *copies
	server  *httptest.Server
	backend http.Handler

	mu sync.Mutex
	// writeErr describes the first request that tried to change a copy. Such a request shows that the fleet has not
	// settled.
	writeErr error
	// forwardedRequests counts the forwarded requests by method, without those for Leases.
	forwardedRequests map[string]int
}

// newStandIn starts a stand-in that forwards requests with the permissions of config.
func newStandIn(c *copies, config *rest.Config) (*standIn, error) {
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("create the stand-in for the API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("create the stand-in for the API server: %w", err)
	}
	s := &standIn{copies: c, forwardedRequests: map[string]int{}, backend: &httputil.ReverseProxy{Transport: transport,
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // Stopping processes cancel their requests.
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}}
	s.server = httptest.NewUnstartedServer(s)
	// API servers use HTTP/2, too.
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	return s, nil
}

func (s *standIn) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return &rest.Config{Host: s.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *standIn) close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// checkSettled returns the number of forwarded requests, or an error if a process tried to change a copy.
func (s *standIn) checkSettled() (forwarded string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.forwardedRequests), s.writeErr
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.copies
	resource, ns, name := parsePath(r.URL.Path)
	i, copied := c.find(ns)
	first, end := 0, c.total(resource)
	if copied {
		each := len(c.kinds[resource].objects)
		first, end = i*each, (i+1)*each
	}
	query := r.URL.Query()
	switch {
	// A list with limit 1 is only a check of the permission.
	case r.Method != http.MethodGet || end == 0 || ns != "" && !copied || query.Get("limit") == "1":
		s.forward(w, r, resource, copied)
	case name != "":
		if object := c.findByName(resource, name, first, end); object != nil {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_, _ = w.Write(object)
			return
		}
		s.forward(w, r, resource, copied)
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		s.watch(w, r, c, resource, first, end)
	default:
		answerList(w, r, c, resource, first, end)
	}
}

func (s *standIn) forward(w http.ResponseWriter, r *http.Request, resource string, copied bool) {
	s.mu.Lock()
	if r.Method != http.MethodGet && (copied || resource == "nodes") && s.writeErr == nil {
		s.writeErr = fmt.Errorf("the fleet has not settled: %s %s", r.Method, r.URL.Path)
	}
	if resource != "leases" {
		s.forwardedRequests[r.Method]++
	}
	s.mu.Unlock()
	s.backend.ServeHTTP(w, r)
}

// parsePath splits the path of a request. The name is empty for lists. If the path contains a subresource, the name has
// the form "NAME/SUBRESOURCE".
func parsePath(path string) (resource, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", "", ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	return parts[0], namespace, strings.Join(parts[1:], "/")
}

// answerList responds with the objects from first to end-1, in pages if the query has a limit.
func answerList(w http.ResponseWriter, r *http.Request, c *copies, resource string, first, end int) {
	query, kind, show := r.URL.Query(), c.kinds[resource].kind, fullObject
	if metadataOnly(r) {
		kind, show = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"), metadataOf
	}
	if next, err := strconv.Atoi(query.Get("continue")); err == nil && next > first {
		first = min(next, end)
	}
	meta := map[string]any{"resourceVersion": c.version}
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 && first+limit < end {
		meta["remainingItemCount"] = end - first - limit
		end = first + limit
		meta["continue"] = strconv.Itoa(end)
	}
	items := make([]json.RawMessage, 0, end-first)
	for i := first; i < end; i++ {
		items = append(items, show(c.object(resource, i)))
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List",
		"metadata": meta, "items": items})
}

// watch sends the existing objects if the client requests them. No further events follow until the client disconnects.
func (s *standIn) watch(w http.ResponseWriter, r *http.Request, c *copies, resource string, first, end int) {
	query, kind, show := r.URL.Query(), c.kinds[resource].kind, fullObject
	if metadataOnly(r) {
		kind, show = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"), metadataOf
	}
	ctx := r.Context()
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	send, contentType := jsonEvents(w), runtime.ContentTypeJSON
	if resource == "nodes" && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		send, contentType = nodeEvents(w), runtime.ContentTypeProtobuf+";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	if query.Get("sendInitialEvents") == "true" {
		for i := first; i < end && ctx.Err() == nil; i++ {
			if err := send("ADDED", show(c.object(resource, i))); err != nil {
				return // The client has disconnected.
			}
		}
		_ = send("BOOKMARK", fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":%q,"annotations":{%q:"true"}}}`,
			kind.GroupVersion().String(), kind.Kind, c.version, metav1.InitialEventsAnnotationKey))
	}
	_ = http.NewResponseController(w).Flush()
	<-ctx.Done()
}

func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func fullObject(object []byte) []byte { return object }

func metadataOf(object []byte) []byte {
	var parsed struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	_ = json.Unmarshal(object, &parsed) // This process encoded the JSON.
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"PartialObjectMetadata","metadata":%s}`, metav1.SchemeGroupVersion,
		parsed.Metadata)
}

func jsonEvents(w http.ResponseWriter) func(eventType string, object []byte) error {
	return func(eventType string, object []byte) error {
		_, err := fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", eventType, object)
		return err
	}
}

// nodeEvents sends watch events of Nodes as protobuf.
func nodeEvents(w http.ResponseWriter) func(eventType string, object []byte) error {
	codecs := clientgoscheme.Codecs
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	frames, encoder := info.StreamSerializer.NewFrameWriter(w), codecs.EncoderForVersion(info.Serializer,
		corev1.SchemeGroupVersion)
	return func(eventType string, object []byte) error {
		node := &corev1.Node{}
		if err := json.Unmarshal(object, node); err != nil {
			return err
		}
		raw, err := runtime.Encode(encoder, node)
		if err != nil {
			return err
		}
		return info.StreamSerializer.Encode(&metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: raw}},
			frames)
	}
}
