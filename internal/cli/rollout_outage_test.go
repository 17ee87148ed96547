package cli

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/test/env"
)

func installAPI(t testing.TB, cp *controlplane.ControlPlane) client.WithWatch {
	t.Helper()
	if err := install.Install(context.Background(), cp.Config()); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cp.Config(), client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// awaitWatch waits until the API server's metrics report a watch of deployments.
func awaitWatch(ctx context.Context, cp *controlplane.ControlPlane) error {
	c, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, env.Patience)
	defer cancel()
	for {
		text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if bytes.HasPrefix(line, []byte("apiserver_longrunning_requests")) &&
				bytes.Contains(line, []byte(`resource="machinedeployments"`)) &&
				!bytes.HasSuffix(bytes.TrimSpace(line), []byte(" 0")) {
				return nil
			}
		}
	}
}

// signal is a writer that closes a channel when a given text has been written.
type signal struct {
	words   string
	once    sync.Once
	written chan struct{}
}

func (s *signal) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(s.words)) {
		s.once.Do(func() { close(s.written) })
	}
	return len(p), nil
}
