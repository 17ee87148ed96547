package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"machinist.dev/machinist/devel/controlplane"
)

// programs contains the paths of the node's programs. pause is the OCI layout of the pause image, and images the folder
// with the OCI layouts of kubeadm's images.
type programs struct {
	containerd, kubelet, proxy, dns, registry string
	kubeadm, kubectl                          string
	pause, images                             string
}

func locatePrograms() (programs, error) {
	var p programs
	cache, err := controlplane.CacheDir()
	if err != nil {
		return p, err
	}
	var errs []error
	for name, path := range map[string]*string{
		"kubelet": &p.kubelet, "kube-proxy": &p.proxy, "kubeadm": &p.kubeadm, "kubectl": &p.kubectl,
	} {
		*path, err = controlplane.Locate(name)
		errs = append(errs, err)
	}
	for name, path := range map[string]*string{
		"containerd": &p.containerd, "coredns": &p.dns, "images": &p.registry, "pause-image": &p.pause,
		"images-of-kubeadm": &p.images,
	} {
		*path = filepath.Join(cache, "node", name)
		_, err := os.Stat(*path)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return p, fmt.Errorf("%w; run hack/node/build.sh to prepare the programs", err)
	}
	return p, nil
}

const requestTimeout = 5 * time.Second

func httpReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}

func listens(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
