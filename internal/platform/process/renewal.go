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

// checkPeriod is the shortest time between two reads of a kubeconfig file because requests fail.
const checkPeriod = time.Second

// kubeconfig is a kubeconfig file whose credentials may be renewed while the process runs. client-go reads the files
// again that a kubeconfig refers to, but not the kubeconfig itself with the tokens, certificates and keys in it.
//
// Everything is taken over from a file that has changed, except the address of the API server: at another address
// there may be another cluster, and the caches, the lease and the recorded cluster ID are those of the first. The
// methods of a nil *kubeconfig do nothing.
//
// A file that is not there yet, or cannot be used yet, is waited for: the Secret that it comes from may be made or
// corrected later. Until then every request fails with noKubeconfigError.
type kubeconfig struct {
	flag, path string
	log        logr.Logger

	mu sync.Mutex
	// hash is of the content that was read last, whether it could be used or not.
	hash [sha256.Size]byte
	// config is what the last content that could be used says, nil if there was none; generation is how many came before
	// it. Clients are made from the first generation, or from awaitedConfig.
	config     *rest.Config
	generation int
	checked    time.Time
	// unusable is why there is no config.
	unusable error
}

// readKubeconfig reads a kubeconfig file for the first time. It returns the configuration that clients are made from.
func readKubeconfig(flag, path string, log logr.Logger) (*rest.Config, *kubeconfig, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, nil, errors.New("it is a folder, give the path of the file in it")
	}
	k := &kubeconfig{flag: flag, path: path, log: log}
	content, err := os.ReadFile(path)
	if err == nil {
		k.hash = sha256.Sum256(content)
		k.config, err = parseKubeconfig(path, content)
	}
	if err != nil {
		k.config, k.unusable = nil, err
		return awaitedConfig(), k, nil
	}
	return rest.CopyConfig(k.config), k, nil
}

// parseKubeconfig does what clientcmd.LoadFromFile does, with content that was read already. Its errors do not quote
// it.
func parseKubeconfig(path string, content []byte) (*rest.Config, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("it is empty")
	}
	file, err := clientcmd.Load(content)
	if err != nil {
		return nil, errors.New("it is no kubeconfig in YAML or JSON") // The parser's own error may quote a token.
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
	// A certificate or key that is no such thing, or a file that the kubeconfig names and that is not there.
	if _, err := rest.TransportFor(config); err != nil {
		return nil, err
	}
	return config, nil
}

// check reads the file again. A file that cannot be used changes nothing: it may be half written, and is read again.
func (k *kubeconfig) check() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read()
}

// renewedSince reports whether what the file says is newer than the generation. It reads the file at most once a
// second.
func (k *kubeconfig) renewedSince(generation int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.generation == generation {
		k.readNowAndThen()
	}
	return k.generation > generation
}

func (k *kubeconfig) readNowAndThen() {
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
		k.log.V(1).Info("The kubeconfig file cannot be read", "path", k.path, "cause", err.Error())
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
			k.log.Info("The kubeconfig file is there", "path", k.path, "server", config.Host)
		}
		return
	}
	if err == nil && config.Host != k.config.Host {
		err = fmt.Errorf("it names the server %s instead of %s, which needs a restart", config.Host, k.config.Host)
	}
	if err != nil {
		k.log.Error(err,
			"The kubeconfig file has changed and cannot be used; the credentials that were read before stay in use",
			"path", k.path)
		return
	}
	k.config = config
	k.generation++
	k.log.Info("The kubeconfig file has changed: requests use the credentials in it from now on", "path", k.path)
}

// current returns what the file says, or why it says nothing yet.
func (k *kubeconfig) current() (*rest.Config, int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config == nil {
		k.readNowAndThen()
	}
	if k.config == nil {
		return nil, 0, &noKubeconfigError{flag: k.flag, path: k.path, cause: k.unusable}
	}
	return k.config, k.generation, nil
}

// renew has all clients made from a configuration use what the file says. It must be the first to wrap the transport,
// and the configuration's Dial must not be changed after it.
func (k *kubeconfig) renew(config *rest.Config) *rest.Config {
	if k == nil {
		return config
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &renewedTransport{file: k, dial: config.Dial, next: next}
	})
	return config
}

// renewedTransport sends requests with the credentials that are in the kubeconfig file now.
type renewedTransport struct {
	file *kubeconfig
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// next is for the generation. That of the first generation gets requests with credentials in their headers.
	next       http.RoundTripper
	generation int
}

// RoundTrip implements http.RoundTripper.
func (t *renewedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	next, generation, err := t.current()
	if err != nil {
		return nil, err
	}
	response, err := next.RoundTrip(stripped(request, generation))
	if err != nil {
		// It may be the authority that was renewed. What was sent may have been carried out, so it is not sent again.
		t.file.renewedSince(generation)
		return nil, err
	}
	if response.StatusCode != http.StatusUnauthorized || !t.file.renewedSince(generation) {
		return response, nil
	}
	// Nothing was done, and there are other credentials by now.
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
	return renewed.RoundTrip(stripped(again, generation))
}

// current returns the transport for what the file says.
func (t *renewedTransport) current() (http.RoundTripper, int, error) {
	config, generation, err := t.file.current()
	if err != nil {
		return nil, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if generation <= t.generation {
		return t.next, t.generation, nil
	}
	renewed := rest.CopyConfig(config)
	renewed.Dial = t.dial
	next, err := rest.TransportFor(renewed)
	if err != nil {
		return nil, 0, fmt.Errorf("use the renewed credentials: %w", err)
	}
	utilnet.CloseIdleConnectionsFor(t.next)
	t.next, t.generation = toServer(next, config), generation
	return t.next, generation, nil
}

// stripped returns the request without the credentials of the first generation, if there is a newer one: client-go adds
// those of the configuration that the client was made from.
func stripped(request *http.Request, generation int) *http.Request {
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

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t *renewedTransport) WrappedRoundTripper() http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}
