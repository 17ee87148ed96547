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

// standIn is in front of an API server: it answers lists and watches of what is copied with the copies, and hands all
// other requests on. So a fleet of any size is there at once and takes no memory but that of the processes that cache
// it. Nothing ever changes in the copies.
type standIn struct {
	copies *copies
	server *httptest.Server
	behind http.Handler

	mu sync.Mutex
	// wrote is a request that would change a copy, if there was one: then the fleet is not settled.
	wrote error
	// others counts the requests that were handed on, less those about leases, by method.
	others map[string]int
}

// newStandIn serves in front of the API server that config leads to, with the rights that config gives.
func newStandIn(c *copies, config *rest.Config) (*standIn, error) {
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("stand in for an API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("stand in for an API server: %w", err)
	}
	s := &standIn{copies: c, others: map[string]int{}, behind: &httputil.ReverseProxy{Transport: transport,
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // Processes that end cancel their requests.
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}}
	s.server = httptest.NewUnstartedServer(s)
	// As clients speak with an API server.
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	return s, nil
}

// config leads to the stand-in.
func (s *standIn) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return &rest.Config{Host: s.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *standIn) close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// settled returns an error if a process wanted to change a copy, and otherwise which requests there were beside lists,
// watches and leases.
func (s *standIn) settled() (others string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.others), s.wrote
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.copies
	resource, ns, name := parsePath(r.URL.Path)
	i, copied := c.find(ns)
	first, end := 0, c.number(resource)
	if copied {
		each := len(c.kinds[resource].objects)
		first, end = i*each, (i+1)*each
	}
	query := r.URL.Query()
	switch {
	// A list of one asks only whether it may.
	case r.Method != http.MethodGet || end == 0 || ns != "" && !copied || query.Get("limit") == "1":
		s.handOn(w, r, resource, copied)
	case name != "":
		if object := c.named(resource, name, first, end); object != nil {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_, _ = w.Write(object)
			return
		}
		s.handOn(w, r, resource, copied)
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		s.watch(w, r, c, resource, first, end)
	default:
		answerList(w, r, c, resource, first, end)
	}
}

func (s *standIn) handOn(w http.ResponseWriter, r *http.Request, resource string, copied bool) {
	s.mu.Lock()
	if r.Method != http.MethodGet && (copied || resource == "nodes") && s.wrote == nil {
		s.wrote = fmt.Errorf("the fleet is not settled: %s %s", r.Method, r.URL.Path)
	}
	if resource != "leases" {
		s.others[r.Method]++
	}
	s.mu.Unlock()
	s.behind.ServeHTTP(w, r)
}

// parsePath returns the resource and the namespace of a path, and the name if it is that of one object. A part of an
// object belongs to its name.
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

// answerList answers with the objects from first to before end, a page of them if the query has a limit.
func answerList(w http.ResponseWriter, r *http.Request, c *copies, resource string, first, end int) {
	query, kind, show := r.URL.Query(), c.kinds[resource].kind, whole
	if metadataOnly(r) {
		kind, show = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"), partial
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

// watch sends what there is, if it is asked for that, and then nothing for as long as the client wants.
func (s *standIn) watch(w http.ResponseWriter, r *http.Request, c *copies, resource string, first, end int) {
	query, kind, show := r.URL.Query(), c.kinds[resource].kind, whole
	if metadataOnly(r) {
		kind, show = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"), partial
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
				return // The client is gone.
			}
		}
		_ = send("BOOKMARK", fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":%q,"annotations":{%q:"true"}}}`,
			kind.GroupVersion().String(), kind.Kind, c.version, metav1.InitialEventsAnnotationKey))
	}
	_ = http.NewResponseController(w).Flush()
	<-ctx.Done()
}

// metadataOnly reports whether a request asks for the metadata of objects only.
func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func whole(object []byte) []byte { return object }

// partial leaves of an object its metadata.
func partial(object []byte) []byte {
	var of struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	_ = json.Unmarshal(object, &of) // It was marshalled here.
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"PartialObjectMetadata","metadata":%s}`, metav1.SchemeGroupVersion,
		of.Metadata)
}

// jsonEvents sends watch events as JSON.
func jsonEvents(w http.ResponseWriter) func(of string, object []byte) error {
	return func(of string, object []byte) error {
		_, err := fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", of, object)
		return err
	}
}

// nodeEvents sends watch events of Nodes as an API server does for clients that like protobuf better.
func nodeEvents(w http.ResponseWriter) func(of string, object []byte) error {
	codecs := clientgoscheme.Codecs
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	frames, encoder := info.StreamSerializer.NewFrameWriter(w), codecs.EncoderForVersion(info.Serializer,
		corev1.SchemeGroupVersion)
	return func(of string, object []byte) error {
		node := &corev1.Node{}
		if err := json.Unmarshal(object, node); err != nil {
			return err
		}
		raw, err := runtime.Encode(encoder, node)
		if err != nil {
			return err
		}
		return info.StreamSerializer.Encode(&metav1.WatchEvent{Type: of, Object: runtime.RawExtension{Raw: raw}}, frames)
	}
}
