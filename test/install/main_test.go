//go:build e2e && linux

// Package install tests the charts: it installs Machinist with Helm into a kubeadm cluster. The package also tests
// upgrades, killed pods and the uninstallation.
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

// `make e2e-install` sets these environment variables.
const (
	layoutVariable = "INSTALL_IMAGES" // the folder of the OCI layout with the images
	fullVariable   = "FULL"           // The value 1 also runs the long tests.
)

const root = "../.."

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	realnode.Main(m)
}

var shared struct {
	cluster *realnode.KubeadmCluster
	err     error
}

// cluster returns the cluster of all tests in this binary. Starting the cluster takes almost a minute, so the cluster
// runs until the process ends. Each test removes what it has installed.
func cluster(t *testing.T) *realnode.KubeadmCluster {
	t.Helper()
	if shared.cluster == nil && shared.err == nil {
		layout := os.Getenv(layoutVariable)
		if layout == "" {
			t.Fatalf("%s is not set: `make e2e-install` builds the images and runs these tests", layoutVariable)
		}
		shared.cluster, shared.err = realnode.StartKubeadm(context.Background(), realnode.KubeadmOptions{
			Layouts: []string{layout}, Output: os.Stdout})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// progress prints a line immediately. The log of a test appears only when the test has ended.
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
