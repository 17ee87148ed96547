// Command fakeaws serves a fake AWS on the loopback interface, to try the AWS provider without an account; see
// package fakeaws. All resources are in memory and lost at the end.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"machinist.dev/machinist/providers/aws/fakeaws"
)

// endpoint is the content of endpoint.json.
type endpoint struct {
	URL       string `json:"url"`
	Region    string `json:"region"`
	AccessKey string `json:"accessKeyID"`
	SecretKey string `json:"secretAccessKey"`
	AdminKey  string `json:"adminKey"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fakeaws", flag.ContinueOnError)
	var o fakeaws.Options
	var policy string
	dir := flags.String("dir", "", "folder for endpoint.json with the address and the credentials. Required")
	listen := flags.String("listen", "127.0.0.1:0", "loopback address to serve on; port 0 selects a free port")
	flags.StringVar(&policy, "policy", "", "file with an IAM policy that restricts the credentials")
	flags.DurationVar(&o.BootDuration, "boot-time", 500*time.Millisecond, "how long an instance takes to boot")
	flags.DurationVar(&o.StopDuration, "stop-time", 300*time.Millisecond, "how long an instance takes to stop")
	flags.DurationVar(&o.TerminateDuration, "terminate-time", 300*time.Millisecond,
		"how long an instance takes to terminate")
	flags.DurationVar(&o.Semantics.ReadLag, "read-lag", 0, "how long reads by ID show the previous state")
	flags.DurationVar(&o.Semantics.ListLag, "list-lag", 0, "how long lists show the previous state")
	flags.IntVar(&o.VCPUQuota, "vcpu-quota", 1000, "how many virtual CPUs the account may have")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is required")
	}
	host, _, err := net.SplitHostPort(*listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen: %q is not a loopback address", *listen)
	}
	if policy != "" {
		raw, err := os.ReadFile(policy)
		if err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
		if o.Policy, err = fakeaws.ParsePolicy(raw); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	o.AccessKey, o.SecretKey, o.Region = "AKIA"+rand.Text()[:16], rand.Text(), "eu-west-1"
	o.Queues = []string{"/111122223333/interruptions"}
	return serve(ctx, o, *dir, *listen)
}

func serve(ctx context.Context, o fakeaws.Options, dir, listen string) error {
	file := filepath.Join(dir, "endpoint.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // A process that waits for the file must not read the file of a previous run.
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	key := rand.Text()
	server := &http.Server{Handler: fakeaws.New(o).WithAdmin(key), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	raw, err := json.Marshal(endpoint{URL: "http://" + listener.Addr().String(), Region: o.Region,
		AccessKey: o.AccessKey,
		SecretKey: o.SecretKey, AdminKey: key})
	if err != nil {
		return err
	}
	// Rename a complete file, so that readers never see an incomplete one.
	if err := os.WriteFile(file+".new", raw, 0o600); err != nil {
		return errors.Join(err, server.Close())
	}
	if err := os.Rename(file+".new", file); err != nil {
		return errors.Join(err, server.Close())
	}
	fmt.Println("AWS is served on", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	return server.Shutdown(end)
}
