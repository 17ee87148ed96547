package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Snapshot copies all data of etcd to a new folder. Snapshot kills the API server and etcd, and starts them again
// afterwards.
func (cp *ControlPlane) Snapshot(ctx context.Context, dir string) error {
	return cp.offline(ctx, func(data string) error { return os.CopyFS(dir, os.DirFS(data)) })
}

// PutBack replaces all data of etcd with a Snapshot. PutBack kills the API server and etcd, and starts them again
// afterwards. Resource versions then continue from the last resource version in the snapshot. The other processes
// continue to run.
func (cp *ControlPlane) PutBack(ctx context.Context, dir string) error {
	return cp.offline(ctx, func(data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(dir))
	})
}

// offline stops the processes that use the data of etcd, passes the folder of this data to the callback, and starts the
// processes again.
func (cp *ControlPlane) offline(ctx context.Context, do func(data string) error) error {
	if err := errors.Join(cp.StopAPIServer(), cp.StopEtcd()); err != nil {
		return err
	}
	if err := do(filepath.Join(cp.Dir(), etcdData)); err != nil {
		return err
	}
	if err := cp.StartEtcd(ctx); err != nil {
		return err
	}
	return cp.StartAPIServer(ctx)
}
