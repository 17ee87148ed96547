// Package otlp provides a receiver of traces for tests. The package serves OTLP over gRPC and HTTP on loopback.
package otlp

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Receiver stores every span that it receives.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	// GRPC and HTTP are the endpoints, in the format of OpenTelemetry's environment variables.
	GRPC, HTTP string

	mu      sync.Mutex
	spans   []Span
	changed chan struct{}
}

// Receive starts a receiver, which runs until the test ends.
func Receive(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{changed: make(chan struct{})}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var serving sync.WaitGroup
	grpcListener, grpcServer := listen(), grpc.NewServer()
	collector.RegisterTraceServiceServer(grpcServer, r)
	serving.Go(func() { _ = grpcServer.Serve(grpcListener) })
	httpListener, httpServer := listen(), &http.Server{Handler: http.HandlerFunc(r.serveHTTP)}
	serving.Go(func() { _ = httpServer.Serve(httpListener) })
	t.Cleanup(func() {
		grpcServer.Stop()
		_ = httpServer.Close()
		serving.Wait()
	})
	r.GRPC, r.HTTP = "http://"+grpcListener.Addr().String(), "http://"+httpListener.Addr().String()
	return r
}

// Export implements collector.TraceServiceServer.
func (r *Receiver) Export(_ context.Context,
	request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, spansOf(request)...)
	close(r.changed)
	r.changed = make(chan struct{})
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *Receiver) serveHTTP(w http.ResponseWriter, request *http.Request) {
	body := io.Reader(request.Body)
	if request.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(request.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	data, err := io.ReadAll(body)
	in := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(data, in)
	}
	if err != nil || request.URL.Path != "/v1/traces" {
		http.Error(w, "not a request to export traces", http.StatusBadRequest)
		return
	}
	out, _ := r.Export(request.Context(), in)
	answer, _ := proto.Marshal(out)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// Spans returns the spans received so far, and a channel that is closed when more arrive.
func (r *Receiver) Spans() ([]Span, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...), r.changed
}
