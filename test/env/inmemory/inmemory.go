// Package inmemory gives tests the API server of test/apiserver in place of a real control plane, which costs 10 to 20
// seconds of processor time for each test binary. The functions of test/env work with it as they do with a real one:
//
//	func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }
//
// Machinist's kinds are served. There are no admission policies and no authorization. Tests of what only a real API server
// does use env.Main.
package inmemory

import (
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
)

// front serves the tests of this binary, set by Main.
var front *apiserver.Front

// Main starts a server, runs the tests and stops it.
func Main(m *testing.M) int {
	logf.SetLogger(logr.Discard())
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "start the API server for the tests:", err)
		return 1
	}
	server := httptest.NewServer(front)
	defer server.Close()
	defer server.CloseClientConnections()
	env.Use(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
	return m.Run()
}

func start() error {
	scheme := env.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	front = apiserver.NewFront(apiserver.New(scheme, time.Now))
	return nil
}

// Client returns an administrator's client that calls the server without HTTP.
func Client() client.WithWatch { return front.Client(apiserver.Administrator) }
