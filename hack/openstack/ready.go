package openstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// listenCheck returns a check that a service responds. The check always succeeds for services that only receive
// messages.
func (c *Cloud) listenCheck(service Service) func(context.Context) error {
	s := c.settings
	switch service {
	case MariaDB:
		return s.mariaDBListens
	case RabbitMQ:
		return func(ctx context.Context) error {
			if !c.services[RabbitMQ][1].IsRunning() { // only the port mapper runs
				return nil
			}
			b, err := dialBroker(ctx, s.Port.RabbitMQ)
			if err != nil {
				return err
			}
			b.close()
			return nil
		}
	case Keystone:
		return c.client.checkServer(s.URL.Keystone)
	case Placement:
		return c.client.checkServer(s.URL.Placement)
	case Glance:
		return c.client.checkServer(s.URL.Glance)
	case Neutron:
		return c.client.checkServer(s.URL.Neutron)
	case NovaAPI:
		return c.client.checkServer(strings.TrimSuffix(s.URL.Nova, "/v2.1"))
	case NovaMetadata:
		return c.client.checkServer(s.URL.NovaMetadata)
	case CinderAPI:
		return c.client.checkServer(fmt.Sprintf("http://127.0.0.1:%d", s.Port.Cinder))
	default:
		return func(context.Context) error { return nil }
	}
}

// mariaDBListens uses the file descriptor of the folder, because the length of socket paths is limited.
func (s settings) mariaDBListens(ctx context.Context) error {
	dir, err := os.Open(filepath.Join(s.Dir, filepath.Dir(mariaDBSocket)))
	if err != nil {
		return err
	}
	defer dir.Close()
	var dialer net.Dialer
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(mariaDBSocket))
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// checkServer checks that a server does not respond with a server error.
func (c *client) checkServer(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/", nil)
		if err != nil {
			return err
		}
		response, err := c.http.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= 500 {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}

// consumerCheck returns a check that every given service has a consumer on each of its RabbitMQ queues.
func (c *Cloud) consumerCheck(services ...Service) func(context.Context) error {
	return func(ctx context.Context) error {
		b, err := dialBroker(ctx, c.settings.Port.RabbitMQ)
		if err != nil {
			return err
		}
		defer b.close()
		for i, service := range services {
			for _, queue := range queues(service) {
				n, err := b.consumers(uint16(i+1), queue)
				if err != nil {
					return fmt.Errorf("queue %s: %w", queue, err)
				}
				if n == 0 {
					return fmt.Errorf("queue %s has no consumers", queue)
				}
			}
		}
		return nil
	}
}

// AwaitReady waits until the cloud can be used. Every service must serve requests, consume its queues, and have
// reported to the database since its start. Every host must be up and in the cell of nova. AwaitReady fails if a
// service does not run or ctx is done.
func (c *Cloud) AwaitReady(ctx context.Context) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	reported := time.Now()
	for {
		for _, service := range Services() {
			for _, p := range c.services[service] {
				if !p.IsRunning() {
					return fmt.Errorf("%s does not run; %s", service, p.LogTail())
				}
			}
		}
		notReady := c.checkReady(ctx)
		if notReady == nil {
			return nil
		}
		if time.Since(reported) > 5*time.Second {
			c.logf("waiting for OpenStack: %v", notReady)
			reported = time.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("OpenStack is not ready: %w: %w", context.Cause(ctx), notReady)
		}
	}
}

// checkReady returns nil if the cloud can be used. Otherwise, the error explains which part is not ready.
func (c *Cloud) checkReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, service := range Services() {
		if err := c.listenCheck(service)(ctx); err != nil {
			return fmt.Errorf("%s: %w", service, err)
		}
	}
	if err := c.consumerCheck(Services()...)(ctx); err != nil {
		return err
	}
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	// To answer one of these requests, a service must read from its database. So a response shows that the service can
	// use its database.
	for _, url := range []string{
		c.settings.URL.Glance + "/v2/images?limit=1",
		c.settings.URL.Neutron + "/v2.0/networks?limit=1",
		c.settings.URL.Placement + "/resource_providers",
	} {
		if err := admin.do(ctx, "GET", url, nil, nil); err != nil {
			return err
		}
	}
	return errors.Join(c.checkReported(ctx, admin), c.hostsUp(ctx, admin), c.backendKnown(ctx, admin))
}

// backendKnown checks that the scheduler of cinder knows a backend. Otherwise volumes would fail.
func (c *Cloud) backendKnown(ctx context.Context, admin *session) error {
	var answer struct{ Pools []struct{ Name string } }
	if err := admin.do(ctx, "GET", c.volumes(admin)+"/scheduler-stats/get_pools", nil, &answer); err != nil {
		return err
	}
	if len(answer.Pools) == 0 {
		return errors.New("cinder-scheduler knows no backend yet")
	}
	return nil
}

func (c *Cloud) volumes(by *session) string {
	return strings.Replace(c.settings.URL.Cinder, "$(project_id)s", by.projectID, 1)
}

// checkReported returns an error if a service has not reported since its start.
func (c *Cloud) checkReported(ctx context.Context, admin *session) error {
	type report struct {
		Binary, Host, State string
		UpdatedAt           string `json:"updated_at"`
	}
	var reports []report
	for _, url := range []string{c.settings.URL.Nova, c.volumes(admin)} {
		var answer struct{ Services []report }
		if err := admin.do(ctx, "GET", url+"/os-services", nil, &answer); err != nil {
			return err
		}
		reports = append(reports, answer.Services...)
	}
	for _, service := range Services() {
		if queues(service) == nil {
			continue
		}
		i := slices.IndexFunc(reports, func(r report) bool {
			return r.Binary == string(service) || isCompute(service) && r.Host == host(service)
		})
		if i < 0 {
			return fmt.Errorf("%s has not registered", service)
		}
		if reports[i].UpdatedAt == "" {
			return fmt.Errorf("%s has not reported yet", service)
		}
		at, err := time.Parse("2006-01-02T15:04:05.000000", reports[i].UpdatedAt)
		if err != nil {
			return fmt.Errorf("%s: the time of the last report: %w", service, err)
		}
		// The database stores times in whole seconds.
		if reports[i].State != "up" || !at.After(c.services[service][0].StartTime()) {
			return fmt.Errorf("%s is %s and reported last at %s", service, reports[i].State, at)
		}
	}
	return nil
}

func (c *Cloud) hostsUp(ctx context.Context, admin *session) error {
	var answer struct {
		Hypervisors []struct {
			Name  string `json:"hypervisor_hostname"`
			State string
		}
	}
	if err := admin.do(ctx, "GET", c.settings.URL.Nova+"/os-hypervisors", nil, &answer); err != nil {
		return err
	}
	for _, compute := range NovaCompute() {
		up := false
		for _, hypervisor := range answer.Hypervisors {
			up = up || hypervisor.Name == host(compute) && hypervisor.State == "up"
		}
		if !up {
			return fmt.Errorf("host %s of %s is not up or not in a cell", host(compute), compute)
		}
	}
	return nil
}
