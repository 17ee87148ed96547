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

// profileSpan is the duration of one CPU profile in seconds.
const profileSpan = 5

const apiServer = "kube-apiserver"

// profileSource is the address at which a process serves its profiles.
type profileSource struct {
	process, address string
	client           *http.Client
}

func (b *bench) openProfiles(ours map[string]string) error {
	config := b.stack.Control.Config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("create a client for the profiles of the API server: %w", err)
	}
	b.pprof = []profileSource{{apiServer, config.Host, client}}
	for name, address := range ours {
		b.pprof = append(b.pprof, profileSource{name, "http://" + address, http.DefaultClient})
	}
	return nil
}

// profile stores CPU profiles of all processes until the caller calls the returned function. The returned function also
// stores heap profiles. Without the flag --profiles, no profiles are stored.
func (b *bench) profile(ctx context.Context, phase string) (stop func()) {
	done := make(chan struct{})
	var profiling sync.WaitGroup
	for _, p := range b.pprof {
		profiling.Go(func() {
			for i := 0; ; i++ {
				b.save(ctx, p, fmt.Sprintf("profile?seconds=%d", profileSpan), fmt.Sprintf("%d-%s-%s-cpu-%03d.pb.gz", b.n, phase,
					p.process, i))
				select {
				case <-done:
					b.save(ctx, p, "heap", fmt.Sprintf("%d-%s-%s-heap.pb.gz", b.n, phase, p.process))
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

// save stores a profile. An unreadable profile does not end the run.
func (b *bench) save(ctx context.Context, from profileSource, path, file string) {
	err := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.address+"/debug/pprof/"+path, nil)
		if err != nil {
			return err
		}
		response, err := from.client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("unexpected status %s", response.Status)
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
		b.printf("cannot read profile %s: %v", file, err)
	}
}
