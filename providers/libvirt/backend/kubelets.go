package backend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/examples/agent"
	"machinist.dev/machinist/internal/class/bootstrap/profile"
)

// Version is the kubelet version of the example fleet. Newer is a later kubelet version for tests of updates. Build
// this kubelet with `go run ./hack/build controlplane kubelet@v1.37.3`.
const (
	Version = "v1.37.2"
	Newer   = "v1.37.3"
)

// PodNetwork configures a network plugin. Pods can reach each other only on the same node. The pod network of a real
// cluster connects all nodes.
const PodNetwork = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// kubelets is an HTTP server from which machines download the kubelet binary.
type kubelets struct {
	server  *http.Server
	url     string
	sums    map[string]string
	fetches atomic.Int64
}

// serveKubelets serves the kubelets that were built together with the control plane.
func serveKubelets(address string) (*kubelets, error) {
	path, err := controlplane.Locate("kubelet")
	if err != nil {
		return nil, fmt.Errorf("%w; hack/node/build.sh builds it", err)
	}
	paths := map[string]string{Version: path}
	kubeadm, err := controlplane.Locate("kubeadm")
	if err != nil {
		return nil, fmt.Errorf("%w; hack/node/build.sh builds it", err)
	}
	if path, err := controlplane.Locate("kubelet-" + Newer); err == nil {
		paths[Newer] = path
	}
	k := &kubelets{sums: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /kubeadm", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, kubeadm) })
	for version, path := range paths {
		if k.sums[version], err = checksum(path); err != nil {
			return nil, err
		}
		mux.HandleFunc("GET /"+version+"/kubelet", func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, path)
			k.fetches.Add(1)
		})
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("serve kubelets: %w", err)
	}
	k.url = "http://" + listener.Addr().String()
	k.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = k.server.Serve(listener) }() // serves until the method close is called
	return k, nil
}

func (k *kubelets) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := k.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop serving kubelets: %w", err), k.server.Close())
	}
	return nil
}

// fetchCount returns the number of downloads of a kubelet.
func (k *kubelets) fetchCount() int { return int(k.fetches.Load()) }

// userData returns a user data template for machines with this image. With withAgent, an agent updates the kubelet in
// place.
func (k *kubelets) userData(withAgent bool) ([]byte, error) {
	o := profile.Options{
		Profile: "preinstalled", Kubelet: profile.KubeletURL,
		KubeletURL: k.url + "/<<KUBELET_VERSION>>/kubelet", KubeletSHA256: k.sums,
		Files: []profile.File{{Path: "/etc/cni/net.d/10-pods.conflist", Content: []byte(PodNetwork)}},
	}
	if withAgent {
		o.Files = append(o.Files, profile.File{Path: "/opt/machinist/update-agent", Content: agent.Script, Executable: true})
		o.Units = append(o.Units, profile.Unit{Name: agent.UnitName, Content: agent.Unit})
	}
	return profile.Render(o)
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
