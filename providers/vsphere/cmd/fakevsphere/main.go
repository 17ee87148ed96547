// Command fakevsphere serves vcsim on the loopback interface, to try the vSphere provider without a vCenter; see
// package
// fakevsphere. All objects are in memory and lost at the end.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/platform/version"
	"machinist.dev/machinist/providers/vsphere/backend"
	"machinist.dev/machinist/providers/vsphere/fakevsphere"
	"machinist.dev/machinist/simcloud/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var dir, listen string
	var cloneTime, taskTime time.Duration
	cmd := &cobra.Command{
		Use:           "fakevsphere",
		Version:       version.String(),
		Short:         "Serve vcsim on the loopback interface",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, _, err := net.SplitHostPort(listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			if ip := net.ParseIP(name); ip == nil || !ip.IsLoopback() {
				return fmt.Errorf("--listen: %q is not a loopback address", listen)
			}
			return serve(cmd.Context(), fakevsphere.Options{Username: "machinist@vsphere.local", Password: rand.Text(),
				TaskDelays: map[string]time.Duration{"CloneVm": cloneTime, "PowerOn": taskTime, "PowerOff": taskTime,
					"Destroy": taskTime, "ReconfigVm": taskTime}}, dir, listen)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "folder for endpoint.json with the address and credentials. Required")
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "loopback address to serve on; port 0 selects a free port")
	flags.DurationVar(&cloneTime, "clone-time", 2*time.Second, "how long a clone takes")
	flags.DurationVar(&taskTime, "task-time", 300*time.Millisecond, "how long other tasks take")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err) // The flag is defined above.
	}
	return cmd
}

func serve(ctx context.Context, o fakevsphere.Options, dir, listen string) (err error) {
	// Drop these log lines: the simulated machines write the same information to their consoles, and vcsim logs faults.
	klog.SetLogger(logr.Discard())
	log.SetOutput(io.Discard)
	endpointFile := filepath.Join(dir, backend.EndpointFile)
	if err := os.Remove(endpointFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // A process that waits for the file must not read the file of a previous run.
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	fleet := host.NewFleet(clock.RealClock{})
	defer fleet.Close()
	o.Hosts = fleet
	vsphere, err := fakevsphere.New(ctx, o)
	if err != nil {
		return err
	}
	defer vsphere.Close()
	key := rand.Text()
	server := &http.Server{Handler: vsphere.WithAdmin(key), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := writeEndpoint(endpointFile, backend.Endpoint{URL: "http://" + listener.Addr().String(), AdminKey: key,
		Username: o.Username, Password: o.Password}); err != nil {
		return errors.Join(err, server.Close())
	}
	fmt.Println("vcsim is served on", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// writeEndpoint writes the file at once, because another process waits for it.
func writeEndpoint(path string, e backend.Endpoint) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
