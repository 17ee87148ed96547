package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// cloud imitates a cloud with a folder that contains one file for each machine. A real provider uses a client for the
// API of its cloud instead.
type cloud struct{ folder string }

type machine struct {
	ID, Name, Size string
	Tags           map[string]string
}

// file returns the path of the file for a machine. An ID with slashes cannot lead outside of the folder.
func (c cloud) file(id string) string { return filepath.Join(c.folder, path.Base(id)+".json") }

func (c cloud) open() error {
	if c.folder == "" {
		return errors.New("--folder is required")
	}
	return os.MkdirAll(c.folder, 0o700)
}

// create creates a machine. If a machine with the same ID exists, create does nothing.
func (c cloud) create(ctx context.Context, m machine) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	draft := filepath.Join(c.folder, "draft-"+rand.Text())
	defer os.Remove(draft)
	if err := os.WriteFile(draft, data, 0o600); err != nil {
		return err
	}
	// With a link, other processes see the file only when it is complete. A link never replaces an existing file.
	if err := os.Link(draft, c.file(m.ID)); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (c cloud) list(ctx context.Context) ([]machine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(c.file("*"))
	if err != nil {
		return nil, err
	}
	var all []machine
	for _, file := range files {
		var m machine
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // The machine was deleted after the folder was read.
		}
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (c cloud) delete(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Remove(c.file(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
