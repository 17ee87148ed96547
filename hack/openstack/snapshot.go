package openstack

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// snapshotSources are the files that determine the content of a snapshot.
//
//go:embed config python schema.go catalog.go seed.go settings.go program.go
var snapshotSources embed.FS

// snapshotDir returns the path of the snapshot, which may not exist yet.
func snapshotDir(root string) (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(snapshotSources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := snapshotSources.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n%s", path, len(content), content)
		return nil
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(root), "snapshot-"+hex.EncodeToString(hash.Sum(nil))[:12]), nil
}

var snapshotFolders = []string{"mariadb", "keystone", "glance"}

// save creates a snapshot of the running cloud. The method stops MariaDB for a moment, because the files of a running
// MariaDB are not consistent.
func (c *Cloud) save(ctx context.Context, snapshot string) error {
	begun := time.Now()
	tmp, err := os.MkdirTemp(filepath.Dir(snapshot), ".snapshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	seeded, err := json.Marshal(c.seeded)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "seeded.json"), seeded, 0o600); err != nil {
		return err
	}
	for _, p := range c.services[MariaDB] {
		if err := p.Stop(time.Minute); err != nil {
			return err
		}
	}
	for _, folder := range snapshotFolders {
		from := os.DirFS(filepath.Join(c.settings.Dir, folder))
		if err := os.CopyFS(filepath.Join(tmp, folder), from); err != nil {
			return err
		}
	}
	if err := c.StartService(ctx, MariaDB); err != nil {
		return err
	}
	// Another cloud may have created the same snapshot meanwhile.
	if err := os.Rename(tmp, snapshot); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	c.logf("saved a snapshot in %s", since(begun))
	return nil
}

func (c *Cloud) restore(snapshot string) error {
	begun := time.Now()
	seeded, err := os.ReadFile(filepath.Join(snapshot, "seeded.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(seeded, &c.seeded); err != nil {
		return err
	}
	for _, folder := range snapshotFolders {
		to := filepath.Join(c.settings.Dir, folder)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(filepath.Join(snapshot, folder))); err != nil {
			return err
		}
	}
	statements := []byte(c.settings.updateURLs())
	if err := os.WriteFile(c.settings.configPath("mariadb.sql"), statements, 0o600); err != nil {
		return err
	}
	c.logf("restored a snapshot in %s", since(begun))
	return c.writeClouds()
}

// writeClouds writes clouds.yaml with the application credential.
func (c *Cloud) writeClouds() error {
	c.settings.ApplicationCredential = &c.seeded.ApplicationCredential
	return c.settings.render("clouds.yaml", "clouds.yaml", c.settings)
}
