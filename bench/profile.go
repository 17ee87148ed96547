package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
)

// profileSpan is how many seconds one CPU profile covers.
const profileSpan = 5

// apiServer is what profiles of the API server are called.
const apiServer = "kube-apiserver"

// profiled is where a process serves its profiles.
type profiled struct {
	process, address string
	client           *http.Client
}

// openProfiles finds out where profiles must be had: those of our processes, and those of the API server.
func (b *bench) openProfiles(ours map[string]string) error {
	config := b.stack.Control.Config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make a client for the profiles of the API server: %w", err)
	}
	b.pprof = []profiled{{apiServer, config.Host, client}}
	for name, address := range ours {
		b.pprof = append(b.pprof, profiled{name, "http://" + address, http.DefaultClient})
	}
	return nil
}

// profile keeps CPU profiles of the API server and of those of our processes that run until stop is called, which
// waits for the last and keeps heap profiles. Without --profiles it does nothing.
func (b *bench) profile(ctx context.Context, phase string) (stop func()) {
	done := make(chan struct{})
	var profiling sync.WaitGroup
	for _, p := range b.pprof {
		profiling.Go(func() {
			for i := 0; ; i++ {
				b.keep(ctx, p, fmt.Sprintf("profile?seconds=%d", profileSpan), fmt.Sprintf("%d-%s-%s-cpu-%03d.pb.gz", b.n, phase,
					p.process, i))
				select {
				case <-done:
					b.keep(ctx, p, "heap", fmt.Sprintf("%d-%s-%s-heap.pb.gz", b.n, phase, p.process))
					return
				case <-ctx.Done():
					return
				default:
				}
			}
		})
	}
	return func() {
		close(done)
		profiling.Wait()
	}
}

// keep stores a profile. One that cannot be read is reported and is no reason to end.
func (b *bench) keep(ctx context.Context, from profiled, what, file string) {
	err := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.address+"/debug/pprof/"+what, nil)
		if err != nil {
			return err
		}
		response, err := from.client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the answer is %s", response.Status)
		}
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(b.profiles, file))
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, response.Body); err != nil {
			_ = out.Close()
			return err
		}
		return out.Close()
	}()
	if err != nil && ctx.Err() == nil {
		b.printf("no profile %s: %v", file, err)
	}
}
