//go:build e2e && linux

// Package install installs Machinist as a user does: by Helm, from images in a registry, into a cluster that kubeadm
// made, and takes it through a pod's death, upgrades and its removal.
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

// The environment variables by which `make e2e-install` passes what it built.
const (
	layoutVariable = "INSTALL_IMAGES" // the OCI layout with the images
	fullVariable   = "FULL"           // 1 for the long journeys as well
)

// root is the folder of the repository.
const root = "../.."

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	realnode.Main(m)
}

// running is the cluster of this test binary: starting it takes most of a minute, and a namespace for each test is
// enough to keep them apart.
var running struct {
	cluster *realnode.KubeadmCluster
	err     error
}

// cluster returns the cluster, which the first test starts. It ends with the process.
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

// progress prints a line at once: a test's own log appears only in the end.
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
