package openstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"machinist.dev/machinist/devel/child"
)

// Options say how to start a cloud.
type Options struct {
	// Dir is the folder with all that the cloud has: configuration, logs, data. It is created, and has to be empty.
	Dir string

	// Output gets a line for each step. Nil discards them.
	Output io.Writer
}

// Cloud is a running OpenStack. Its methods may be called by one goroutine at a time, but for Client, CloudsYAML and
// the methods that return what does not change.
type Cloud struct {
	settings settings
	seeded   Seeded
	services map[Service][]*child.Process
	client   *client
	output   io.Writer
	begun    time.Time
	lines    sync.Mutex
}

// Start starts a cloud and returns when it is ready, as AwaitReady says. The first start on a machine downloads
// OpenStack and makes its databases, which takes minutes; later ones begin with a copy of them.
func Start(ctx context.Context, o Options) (*Cloud, error) {
	c := &Cloud{output: o.Output, begun: time.Now(), services: map[Service][]*child.Process{}}
	if c.output == nil {
		c.output = io.Discard
	}
	dir, err := emptyDir(o.Dir)
	if err != nil {
		return nil, err
	}
	root, err := install(ctx, c.output)
	if err != nil {
		return nil, err
	}
	if c.settings, err = newSettings(dir, root); err != nil {
		return nil, err
	}
	c.client = newClient()
	for _, s := range Services() {
		c.services[s] = c.settings.processes(s)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start OpenStack in %s: %w", dir, err), c.Stop())
	}
	c.logf("OpenStack is ready after %s", since(c.begun))
	return c, nil
}

func (c *Cloud) start(ctx context.Context) error {
	if err := c.settings.write(); err != nil {
		return err
	}
	snapshot, err := snapshotDir(c.settings.Root)
	if err != nil {
		return err
	}
	if _, err := os.Stat(snapshot); err == nil {
		if err := c.restore(snapshot); err != nil {
			return err
		}
		if err := c.startServices(ctx); err != nil {
			return err
		}
		return c.AwaitReady(ctx)
	}
	return c.startFirst(ctx, snapshot)
}

// emptyDir creates a folder and returns its absolute path.
func emptyDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the folder %s is not empty: give OpenStack one of its own", dir)
	}
	return dir, nil
}

// Dir returns the folder of the cloud. The logs of a service are in the files that begin with its name.
func (c *Cloud) Dir() string { return c.settings.Dir }

// Seeded returns what is in the cloud when it starts.
func (c *Cloud) Seeded() Seeded { return c.seeded }

// AuthURL returns the URL of the identity service.
func (c *Cloud) AuthURL() string { return c.settings.URL.Keystone }

// MetadataURL returns the URL of the metadata service, as a guest's http://169.254.169.254.
func (c *Cloud) MetadataURL() string { return c.settings.URL.NovaMetadata }

// MetadataSecret returns the secret by which neutron's proxy proves to the metadata service which server asks: the
// header X-Instance-ID-Signature is the HMAC-SHA256 of the server's ID with it, in hexadecimal. The headers
// X-Instance-ID and X-Tenant-ID name the server and its project.
func (c *Cloud) MetadataSecret() string { return c.settings.MetadataSecret }

// logf writes a line to the output.
func (c *Cloud) logf(format string, args ...any) {
	c.lines.Lock()
	defer c.lines.Unlock()
	fmt.Fprintf(c.output, "openstack: "+format+"\n", args...)
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }

// together runs functions at the same time and returns when all have ended. The first error ends the others' context.
func together(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(functions))
	var running sync.WaitGroup
	for i, function := range functions {
		running.Go(func() {
			if errs[i] = function(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
