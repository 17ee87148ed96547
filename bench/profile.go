package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"machinist.dev/machinist/internal/stack"
)

// profileSpan is how many seconds one CPU profile covers.
const profileSpan = 5

// profile keeps CPU profiles of both processes until stop is called, which waits for the last and keeps a heap profile.
// Without --profiles it does nothing.
func (b *bench) profile(ctx context.Context, phase string) (stop func()) {
	if b.profiles == "" {
		return func() {}
	}
	done := make(chan struct{})
	var profiling sync.WaitGroup
	for _, name := range []string{stack.Manager, stack.Provider} {
		address := b.pprof[name]
		profiling.Go(func() {
			for i := 0; ; i++ {
				file := fmt.Sprintf("%d-%s-%s-cpu-%03d.pb.gz", b.n, phase, name, i)
				b.keep(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, profileSpan), file)
				select {
				case <-done:
					b.keep(ctx, fmt.Sprintf("http://%s/debug/pprof/heap", address), fmt.Sprintf("%d-%s-%s-heap.pb.gz", b.n, phase, name))
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

// keep stores a profile. One that cannot be had is told of and no reason to end.
func (b *bench) keep(ctx context.Context, url, file string) {
	err := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
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
		b.say("no profile %s: %v", file, err)
	}
}
