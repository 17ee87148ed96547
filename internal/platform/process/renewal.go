package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// checkPeriod is the minimum time between two reads of a kubeconfig file after failed requests.
const checkPeriod = time.Second

// drainLimit is the maximum number of bytes that are read from an unused response to keep its connection.
const drainLimit = 64 << 10

// kubeconfig is a kubeconfig file whose credentials may be renewed while the process runs. client-go notices changes
// of the files to which a kubeconfig refers. client-go does not notice changes of embedded tokens, certificates and
// keys.
//
// If the file changes, the process uses its new content, except for a new address of the API server. The new address
// may belong to another cluster, but the caches, the Lease and the cluster ID belong to the first cluster. A process
// without a kubeconfig file uses a nil *kubeconfig, whose methods do nothing.
//
// The process waits for a file that does not exist or cannot be used yet, because its Secret may be created or
// corrected later. Until the file can be used, every request fails with noKubeconfigError.
type kubeconfig struct {
	flag, path string
	log        logr.Logger

	mu sync.Mutex
	// hash identifies the content that was read last, even if that content was not usable.
	hash [sha256.Size]byte
	// config is the last usable configuration, or nil. generation counts the earlier usable configurations, so it is
	// 0 for the first configuration. Clients are created from generation 0, or from placeholderConfig if the file is
	// not usable at the start.
	config     *rest.Config
	generation int
	checked    time.Time
	unusable   error
}

// readKubeconfig reads a kubeconfig file for the first time. It returns the configuration for new clients.
func readKubeconfig(flag, path string, log logr.Logger) (*rest.Config, *kubeconfig, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, nil, errors.New("the path is a folder: give the path of the file in it")
	}
	k := &kubeconfig{flag: flag, path: path, log: log}
	content, err := os.ReadFile(path)
	if err == nil {
		k.hash = sha256.Sum256(content)
		k.config, err = parseKubeconfig(path, content)
	}
	if err != nil {
		k.config, k.unusable = nil, err
		return placeholderConfig(), k, nil
	}
	return rest.CopyConfig(k.config), k, nil
}

// parseKubeconfig parses content like clientcmd.LoadFromFile. The errors of parseKubeconfig do not quote the content.
func parseKubeconfig(path string, content []byte) (*rest.Config, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("the file is empty")
	}
	file, err := clientcmd.Load(content)
	if err != nil {
		return nil, errors.New("the file is not a kubeconfig in YAML or JSON") // The parser's error may quote a token.
	}
	for _, user := range file.AuthInfos {
		user.LocationOfOrigin = path
	}
	for _, cluster := range file.Clusters {
		cluster.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	// Creating a transport detects invalid certificates and keys, and missing referenced files.
	if _, err := rest.TransportFor(config); err != nil {
		return nil, err
	}
	return config, nil
}

// check reads the file again. A file that cannot be used, such as a half-written file, changes nothing.
func (k *kubeconfig) check() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read()
}

// renewedSince reports whether the file has had new usable content since the given generation. renewedSince reads the
// file at most once per checkPeriod.
func (k *kubeconfig) renewedSince(generation int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.generation == generation {
		k.readAtMostOncePerPeriod()
	}
	return k.generation > generation
}

func (k *kubeconfig) readAtMostOncePerPeriod() {
	if time.Since(k.checked) >= checkPeriod {
		k.read()
	}
}

func (k *kubeconfig) read() {
	k.checked = time.Now()
	content, err := os.ReadFile(k.path)
	if err != nil {
		if k.config == nil {
			k.unusable = err
		}
		k.log.V(1).Info("Cannot read the kubeconfig file", "path", k.path, "cause", err.Error())
		return
	}
	hash := sha256.Sum256(content)
	if hash == k.hash {
		return
	}
	k.hash = hash
	config, err := parseKubeconfig(k.path, content)
	if k.config == nil {
		if k.unusable = err; err == nil {
			k.config = config
			k.generation++
			k.log.Info("The kubeconfig file can be used now", "path", k.path, "server", config.Host)
		}
		return
	}
	if err == nil && config.Host != k.config.Host {
		err = fmt.Errorf("the file names the server %s instead of %s: restart the process to use it", config.Host, k.config.Host)
	}
	if err != nil {
		k.log.Error(err,
			"The kubeconfig file has changed and cannot be used: requests still use the previous credentials",
			"path", k.path)
		return
	}
	k.config = config
	k.generation++
	k.log.Info("The kubeconfig file has changed: requests use its credentials from now on", "path", k.path)
}

func (k *kubeconfig) current() (*rest.Config, int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config == nil {
		k.readAtMostOncePerPeriod()
	}
	if k.config == nil {
		return nil, 0, &noKubeconfigError{flag: k.flag, path: k.path, cause: k.unusable}
	}
	return k.config, k.generation, nil
}

// renew makes all clients of a configuration use the current credentials in the file. It must wrap the transport before
// any other wrapper. Do not change the Dial of the configuration afterwards.
func (k *kubeconfig) renew(config *rest.Config) *rest.Config {
	if k == nil {
		return config
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &renewedTransport{file: k, dial: config.Dial, transport: next}
	})
	return config
}

type renewedTransport struct {
	file *kubeconfig
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// transport is the transport for the current generation. While the process still uses the first kubeconfig
	// (generation 0), client-go adds the credentials to requests.
	transport  http.RoundTripper
	generation int
}

// RoundTrip implements http.RoundTripper.
func (t *renewedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	next, generation, err := t.current()
	if err != nil {
		return nil, err
	}
	response, err := next.RoundTrip(withoutCredentials(request, generation))
	if err != nil {
		// The certificate authority may have been renewed. Do not repeat the request, because the server may have
		// processed it.
		t.file.renewedSince(generation)
		return nil, err
	}
	if response.StatusCode != http.StatusUnauthorized || !t.file.renewedSince(generation) {
		return response, nil
	}
	again := request.Clone(request.Context())
	switch {
	case request.Body == nil || request.Body == http.NoBody:
	case request.GetBody == nil:
		return response, nil
	default:
		if again.Body, err = request.GetBody(); err != nil {
			return response, nil
		}
	}
	renewed, generation, err := t.current()
	if err != nil {
		return response, nil
	}
	_, _ = io.CopyN(io.Discard, response.Body, drainLimit)
	_ = response.Body.Close()
	return renewed.RoundTrip(withoutCredentials(again, generation))
}

func (t *renewedTransport) current() (http.RoundTripper, int, error) {
	config, generation, err := t.file.current()
	if err != nil {
		return nil, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if generation <= t.generation {
		return t.transport, t.generation, nil
	}
	renewed := rest.CopyConfig(config)
	renewed.Dial = t.dial
	next, err := rest.TransportFor(renewed)
	if err != nil {
		return nil, 0, fmt.Errorf("use the renewed credentials: %w", err)
	}
	utilnet.CloseIdleConnectionsFor(t.transport)
	t.transport, t.generation = toServer(next, config), generation
	return t.transport, generation, nil
}

// withoutCredentials removes the credentials that client-go added to a request, unless the generation is 0. client-go
// takes the credentials from the configuration with which the client was created, so they are old after a renewal.
func withoutCredentials(request *http.Request, generation int) *http.Request {
	if generation == 0 {
		return request
	}
	request = request.Clone(request.Context())
	for name := range request.Header {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
			request.Header.Del(name)
		}
	}
	return request
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t *renewedTransport) WrappedRoundTripper() http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.transport
}
