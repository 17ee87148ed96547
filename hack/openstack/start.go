package openstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"machinist.dev/machinist/devel/child"
)

// grace is how long a service may take to end after a signal. A service first completes its current requests. Some
// services never end while another service is missing.
const grace = 2 * time.Second

// Stop ends all services of the cloud. The folder remains.
func (c *Cloud) Stop() error {
	begun := time.Now()
	var errs []error
	services := Services()
	// MariaDB and RabbitMQ must end last.
	groups := [][]Service{services[2:], services[:2]}
	for _, group := range groups {
		var mutex sync.Mutex
		var running sync.WaitGroup
		for _, service := range group {
			for _, p := range c.services[service] {
				running.Go(func() {
					if err := p.Stop(grace); err != nil {
						mutex.Lock()
						defer mutex.Unlock()
						errs = append(errs, err)
					}
				})
			}
		}
		running.Wait()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.logf("all services have ended after %s", since(begun))
	return nil
}

// Kill kills all processes of a service to simulate a crash.
func (c *Cloud) Kill(service Service) error {
	processes, err := c.processes(service)
	for _, p := range processes {
		err = errors.Join(err, p.Kill())
	}
	return err
}

func (c *Cloud) processes(service Service) ([]*child.Process, error) {
	processes, known := c.services[service]
	if !known {
		return nil, fmt.Errorf("unknown service %q: use one of %v", service, Services())
	}
	return processes, nil
}

// StartService starts a service and returns when it listens. The service may not consume its message queue yet: see
// AwaitReady.
func (c *Cloud) StartService(ctx context.Context, service Service) error {
	processes, err := c.processes(service)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if err := p.Start(); err != nil {
			return err
		}
		if err := p.Await(ctx, c.listenCheck(service)); err != nil {
			return err
		}
	}
	return nil
}

// Restart kills a service and starts it again.
func (c *Cloud) Restart(ctx context.Context, service Service) error {
	if err := c.Kill(service); err != nil {
		return err
	}
	return c.StartService(ctx, service)
}

// startServices starts all services that are not running, each as soon as the services that it needs have started.
func (c *Cloud) startServices(ctx context.Context) error {
	started := map[Service]chan struct{}{}
	for _, service := range Services() {
		started[service] = make(chan struct{})
	}
	var functions []func(context.Context) error
	for _, service := range Services() {
		functions = append(functions, func(ctx context.Context) error {
			for _, other := range c.prerequisites(service) {
				select {
				case <-started[other]:
				case <-ctx.Done():
					return nil // Another function returned an error.
				}
			}
			begun := time.Now()
			if !c.services[service][0].IsRunning() {
				if err := c.StartService(ctx, service); err != nil {
					return err
				}
			}
			if service == NovaConductor {
				// A starting host waits for a long time if the conductor does not consume its queue yet.
				if err := c.services[service][0].Await(ctx, c.consumerCheck(service)); err != nil {
					return err
				}
			}
			c.logf("%s: %s", service, since(begun))
			close(started[service])
			return nil
		})
	}
	return parallel(ctx, functions...)
}

// prerequisites returns the services that must listen before the given service starts.
func (c *Cloud) prerequisites(service Service) []Service {
	switch {
	case service == MariaDB || service == RabbitMQ:
		return nil
	case service == Keystone || service == Placement:
		return []Service{MariaDB}
	case service == NovaMetadata:
		// nova-metadata sends one request to the conductor, and ends if there is no answer.
		return []Service{MariaDB, Keystone, NovaConductor}
	case isCompute(service):
		// A host that cannot report its resources retries only after a minute.
		return []Service{MariaDB, RabbitMQ, Keystone, Placement, Neutron, NovaConductor}
	default:
		// The conductor and the scheduler of nova end if their first login fails. The other services would retry their
		// login. But their requests would slow down the start of keystone, so start them after keystone.
		return []Service{MariaDB, Keystone}
	}
}

func (c *Cloud) run(ctx context.Context, p *child.Process) error {
	begun := time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", p.Name, context.Cause(ctx)), p.Kill())
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %w; %s", p.Name, err, p.LogTail())
	}
	c.logf("%s: %s", p.Name, since(begun))
	return nil
}

func (c *Cloud) sql(ctx context.Context, name, statements string) error {
	s := c.settings
	path := s.configPath(name + ".sql")
	if err := os.WriteFile(path, []byte(statements), 0o600); err != nil {
		return err
	}
	return c.run(ctx, &child.Process{
		Name: name, Path: s.Root + "/usr/bin/mariadb", Dir: s.Dir, Env: s.environment(),
		Args: []string{"--no-defaults", "--socket=" + mariaDBSocket, "--user=root", "--execute=source " + path},
	})
}
