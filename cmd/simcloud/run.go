package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/fault"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
	"machinist.dev/machinist/simcloud/server"
)

const shutdownTime = 5 * time.Second

type options struct {
	listen          string
	allowAnyAddress bool
	addressFile     string
	stateDir        string
	config          string
	token           string
	adminToken      string
	log             *slog.Logger
}

// run serves until the context ends, and then saves the state.
func run(ctx context.Context, o options) (err error) {
	cat, err := configuration(o)
	if err != nil {
		return err
	}
	if err := checkAddress(o); err != nil {
		return err
	}
	if o.addressFile != "" {
		// A process that waits for the file must not find the address of a previous run.
		if err := os.Remove(o.addressFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("--address-file: %w", err)
		}
	}
	j, err := journal.Open(o.stateDir)
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	rules, err := fault.Load(j)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()

	fleet := host.NewFleet(clock.RealClock{})
	defer fleet.Close() // before the journal closes, because machines still save
	c, err := cloud.New(cloud.Options{Catalog: cat, Journal: j, Hosts: fleet, Log: o.log})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { c.Run(ctx) })

	httpServer := &http.Server{
		Handler:           server.New(ctx, server.Options{Cloud: c, Rules: rules, AdminToken: o.adminToken, Log: o.log}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(o.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	background.Go(func() { served <- httpServer.Serve(listener) })
	address := listener.Addr().String()
	if o.addressFile != "" {
		if err := writeAtomically(o.addressFile, address+"\n"); err != nil {
			return errors.Join(fmt.Errorf("--address-file: %w", err), httpServer.Close())
		}
	}
	o.log.Info("serving the cloud API", "address", address, "stateDir", o.stateDir, "accounts", len(cat.Accounts))

	select {
	case <-ctx.Done():
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	o.log.Info("shutting down the cloud")
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := httpServer.Shutdown(end); err != nil {
		return errors.Join(fmt.Errorf("wait for running calls to end: %w", err), httpServer.Close())
	}
	return nil
}

// configuration returns the catalog in the file of --config, or the built-in catalog. The function adds an account
// for --token.
func configuration(o options) (*catalog.Catalog, error) {
	cat := catalog.Default()
	if o.config != "" {
		var err error
		if cat, err = catalog.Load(o.config); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
	}
	if o.token != "" {
		cat.Accounts = append(cat.Accounts, catalog.Account{Name: "default", Token: o.token})
	}
	if len(cat.Accounts) == 0 {
		return nil, errors.New("there is no account: set --token, --token-file or accounts in --config")
	}
	if err := cat.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return cat, nil
}

// checkAddress prevents other hosts from reaching the cloud by mistake.
func checkAddress(o options) error {
	name, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	ip := net.ParseIP(name)
	if o.allowAnyAddress || name == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("--listen: %q is not a loopback address; set --allow-non-loopback to serve on it", o.listen)
}

// writeAtomically writes a file so that readers see either the whole content or no file.
func writeAtomically(path, content string) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.WriteString(content)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
