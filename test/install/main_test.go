//go:build e2e && linux

// It also tests what happens when pods are killed, and when Machinist is upgraded or uninstalled. It also tests killed
// pods, upgrades and the uninstallation.
package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/realnode"
)

// The environment variables that `make e2e-install` sets.
const (
	layoutVariable = "INSTALL_IMAGES" // the folder of the OCI layout with the images
	fullVariable   = "FULL"           // 1 to also run the long tests
)

// root is the path of the repository.
const root = "../.."

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	realnode.Main(m)
}

// running is the cluster that all tests of this binary share, because its start takes almost a minute. Each test leaves
// it empty.
var running struct {
	cluster *realnode.KubeadmCluster
	err     error
}

// cluster returns the shared cluster. The first call starts it. It runs until the process ends.
func cluster(t *testing.T) *realnode.KubeadmCluster {
	t.Helper()
	if running.cluster == nil && running.err == nil {
		layout := os.Getenv(layoutVariable)
		if layout == "" {
			t.Fatalf("%s is not set: `make e2e-install` builds the images and runs these tests", layoutVariable)
		}
		running.cluster, running.err = realnode.StartKubeadm(context.Background(), realnode.KubeadmOptions{
			Layouts: []string{layout}, Output: os.Stdout})
	}
	if running.err != nil {
		t.Fatal(running.err)
	}
	return running.cluster
}

// progress prints a line immediately, because go test prints the log of a test only after the end of the test.
func progress(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Printf("    "+t.Name()+": "+format+"\n", args...)
}

func clientOf(t *testing.T, c *realnode.KubeadmCluster) client.WithWatch {
	t.Helper()
	scheme := env.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.NewWithWatch(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func chart(name string) string { return filepath.Join(root, "charts", name) }

func full() bool { return os.Getenv(fullVariable) == "1" }
