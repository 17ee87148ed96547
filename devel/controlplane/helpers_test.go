package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
)

// patience is how long a test waits for an expected event on a busy machine.
const patience = 90 * time.Second

func run(t *testing.T, o Options, freePort func() (int, error)) *ControlPlane {
	t.Helper()
	o.Output = writerFunc(func(line []byte) { t.Log(strings.TrimSpace(string(line))) })
	cp, err := start(t.Context(), o, freePort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

type writerFunc func([]byte)

func (w writerFunc) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientOf(t *testing.T, cp *ControlPlane, user string, groups ...string) client.Client {
	t.Helper()
	config, err := cp.UserConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, config)
}

func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still not after %v: %v", patience, err)
		case <-ticker.C:
		}
	}
}

func configMap(name string) *corev1.ConfigMap {
	configMap := &corev1.ConfigMap{}
	configMap.Namespace, configMap.Name = "default", name
	return configMap
}

// stopLeavesNoProcess checks that a control plane runs the named processes, stops it, and checks that no process
// remains.
func stopLeavesNoProcess(t *testing.T, cp *ControlPlane, names ...string) {
	t.Helper()
	pids := map[string]int{}
	for _, p := range []*child.Process{cp.etcd, cp.apiServer, cp.controllerManager, cp.scheduler} {
		if p.IsRunning() {
			pids[p.Name] = p.PID()
		}
	}
	if got := slices.Sorted(maps.Keys(pids)); !slices.Equal(got, names) {
		t.Errorf("the processes %q are running, want %q", got, names)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	for name, pid := range pids {
		if alive, err := isAlive(pid); alive || err != nil {
			t.Errorf("%s (PID %d) is alive: %v, %v, want false", name, pid, alive, err)
		}
	}
}

// isAlive reports whether a process is running, child or not. A zombie does not run.
func isAlive(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The state follows the name, which is in parentheses and may itself contain parentheses.
	rest := string(stat)[strings.LastIndexByte(string(stat), ')')+1:]
	state := strings.Fields(rest)[0]
	return state != "Z" && state != "X", nil
}
