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

// Options configure Start.
type Options struct {
	// Dir is an empty or missing folder for all files of the cloud: configuration, logs and data.
	Dir string

	// Output receives a line for each step. If the field is nil, the lines are discarded.
	Output io.Writer
}

// Cloud is a running OpenStack. The methods of Cloud must not be called concurrently, except Client, CloudsYAML and
// methods that return constant values.
type Cloud struct {
	settings settings
	seeded   SeedObjects
	services map[Service][]*child.Process
	client   *client
	output   io.Writer
	begun    time.Time
	lines    sync.Mutex
}

// Start starts a cloud and waits until it is ready: see AwaitReady. The first start on a machine takes minutes: it
// downloads OpenStack and creates the databases. After that, a start only copies the databases.
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
		return "", fmt.Errorf("the folder %s is not empty: use an empty folder for OpenStack", dir)
	}
	return dir, nil
}

// Dir returns the folder of the cloud. The names of log files begin with the name of the service.
func (c *Cloud) Dir() string { return c.settings.Dir }

// SeedObjects returns the objects that exist in the cloud when it starts.
func (c *Cloud) SeedObjects() SeedObjects { return c.seeded }

// AuthURL returns the URL of the identity service.
func (c *Cloud) AuthURL() string { return c.settings.URL.Keystone }

// MetadataURL returns the URL of the metadata service, for http://169.254.169.254 in a guest.
func (c *Cloud) MetadataURL() string { return c.settings.URL.NovaMetadata }

// MetadataSecret returns the secret that authenticates requests to the metadata service. The header
// X-Instance-ID-Signature is the hexadecimal HMAC-SHA256 of the server's ID with this secret. The headers X-Instance-ID
// and X-Tenant-ID contain the IDs of the server and its project.
func (c *Cloud) MetadataSecret() string { return c.settings.MetadataSecret }

func (c *Cloud) logf(format string, args ...any) {
	c.lines.Lock()
	defer c.lines.Unlock()
	fmt.Fprintf(c.output, "openstack: "+format+"\n", args...)
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }

// parallel runs functions in parallel and waits for all of them. The first error cancels the context of the others.
func parallel(ctx context.Context, functions ...func(context.Context) error) error {
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
