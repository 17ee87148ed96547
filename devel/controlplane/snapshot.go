package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Snapshot copies all that etcd stores to a new folder. For that it ends the API server and etcd as a crash would, and
// starts them again.
func (cp *ControlPlane) Snapshot(ctx context.Context, dir string) error {
	return cp.offline(ctx, func(data string) error { return os.CopyFS(dir, os.DirFS(data)) })
}

// PutBack replaces all that etcd stores by a Snapshot. The API server and etcd end as by a crash and are started again.
// Versions of objects then go on from those of the snapshot. Everything else goes on.
func (cp *ControlPlane) PutBack(ctx context.Context, dir string) error {
	return cp.offline(ctx, func(data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(dir))
	})
}

// offline does something with the folder of etcd's data while nothing uses it.
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
