//go:build openstack

package openstack

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCloudRecoversFromKilledServices(t *testing.T) {
	c := startCloud(t)
	for _, service := range Services() {
		t.Run(string(service), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.Kill(service); err != nil {
				t.Fatal(err)
			}
			if err := c.AwaitReady(ctx); err == nil {
				t.Fatalf("the cloud is ready without %s", service)
			}
			if err := c.StartService(ctx, service); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if err := c.AwaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("ready after %s", since(begun))
		})
	}
	p := newMember(t, c)
	server := p.createServer(map[string]any{
		"flavorRef": p.seeded.Flavors["m1.small"], "imageRef": p.seeded.Images["debian-12"],
		"networks": []map[string]any{{"uuid": p.seeded.Networks["nodes"].ID}},
	})
	p.expectServer(server, "ACTIVE")
	p.must("DELETE", p.url.Nova+"/servers/"+server, nil)
	p.expectNotFound(p.url.Nova + "/servers/" + server)
}

// startCloud also checks at the end of the test that no process of the cloud is left.
func startCloud(t *testing.T) *Cloud {
	t.Helper()
	c, err := Start(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "cloud"), Output: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(runningProcesses(t, c)) < len(Services()) {
		t.Fatalf("found only these processes of the cloud: %v", runningProcesses(t, c))
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		for pid, command := range runningProcesses(t, c) {
			t.Errorf("process %d still runs: %s", pid, command)
		}
		ports := reflect.ValueOf(c.settings.Port)
		for i := range ports.NumField() {
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports.Field(i).Int())))
			if conn, err := net.Dial("tcp", address); err == nil {
				conn.Close()
				t.Errorf("a process still listens on %s, the port of %s", address, ports.Type().Field(i).Name)
			}
		}
	})
	return c
}

// runningProcesses returns the processes whose working directory is in the folder of the cloud. The result includes
// all processes of the cloud.
func runningProcesses(t *testing.T, c *Cloud) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// The link no longer exists if the process has just ended.
		dir, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err == nil && (dir == c.Dir() || strings.HasPrefix(dir, c.Dir()+"/")) {
			command, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
			found[pid] = strings.ReplaceAll(string(command), "\x00", " ")
		}
	}
	return found
}
