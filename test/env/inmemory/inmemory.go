// Package inmemory starts the API server of test/apiserver for the tests of a binary. A real control plane would cost
// 10 to 20 seconds of processor time. The functions of test/env work with this server and with a real control plane:
//
//	func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }
//
// The server serves the kinds of Machinist, without admission policies and authorization. Tests that need a real API
// server use env.Main.
package inmemory

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
)

var front *apiserver.Front

// Main starts a server, runs the tests and stops the server.
func Main(m *testing.M) int {
	logf.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "create a directory for the tests:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	front = newFront()
	server := httptest.NewServer(front)
	defer server.Close()
	defer server.CloseClientConnections()
	config := &rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	file := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(file, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	env.Use(config, file)
	return m.Run()
}

// fronts is the number of servers that this binary has started. Each server gets its own range of UIDs.
var fronts atomic.Int64

func newFront() *apiserver.Front {
	scheme := env.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	server := apiserver.New(scheme, time.Now)
	server.SkipUIDs(100_000 * fronts.Add(1))
	return apiserver.NewFront(server)
}

// NewCluster creates an additional, empty cluster, and returns a client with the permissions of an administrator.
func NewCluster() client.WithWatch { return newFront().Client(apiserver.Administrator) }

// WithoutMachinist starts a cluster without the kinds of Machinist, stops it when the test ends, and returns the path
// of its kubeconfig.
func WithoutMachinist(t testing.TB) string {
	t.Helper()
	other := newFront()
	other.Hide(v1beta1.GroupVersion.Group)
	server := httptest.NewServer(other)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(file, &rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	return file
}

// Client returns an administrator's client that calls the server without HTTP.
func Client() client.WithWatch { return front.Client(apiserver.Administrator) }
